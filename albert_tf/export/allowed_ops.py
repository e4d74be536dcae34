"""Lists the operations that an exported model may contain.

These are the operations that the models of this package need (`saved_model_test.py`
exports them), and others that also only compute, which another version of Keras may
choose instead.
"""

_COMPUTE = """
    AddV2 All Any ArgMax BatchMatMulV2 BiasAdd BroadcastTo Cast ConcatV2 Const Cumsum
    Einsum Equal Erfc ExpandDims Fill FloorDiv FloorMod GatherNd GatherV2 GreaterEqual
    Identity IdentityN Less LessEqual LogicalAnd MatMul Max Maximum Mean Min Minimum Mul
    Neg NoOp NotEqual OneHot Pack Pow Prod RaggedGather RaggedRange RaggedTensorToTensor
    Range RealDiv Relu Reshape Rsqrt Select SelectV2 Shape Sigmoid Softmax Square
    SquaredDifference Squeeze StopGradient StridedSlice Sub Sum Tanh TensorScatterUpdate
    Tile Transpose Unpack UpperBound Where
"""
_ALSO_COMPUTE = """
    Abs Add AddN BatchMatMulV3 Bitcast BroadcastArgs Ceil Erf Exp Expm1 Floor
    FusedBatchNormV3 Greater LeakyRelu Log Log1p LogicalNot LogicalOr
    LogSoftmax OnesLike PadV2 Rank Reciprocal Round ScatterNd Selu Sign Size Slice
    Softplus Split SplitV Sqrt TensorScatterAdd ZerosLike
"""
# Control flow, calls of the graph's own functions, inputs, checks of inputs.
_STRUCTURE = """
    Assert EnsureShape If PartitionedCall Placeholder PlaceholderWithDefault
    StatefulPartitionedCall StatelessIf StatelessWhile While
"""
_STRINGS = """
    ParseExampleV2 StaticRegexFullMatch StaticRegexReplace StringJoin StringLength
    StringStrip Substr UnicodeDecode UnicodeEncode UnicodeTranscode UnsortedSegmentJoin
"""
# For byte-level BPE; its table is filled from constants in the graph.
_BYTE_BPE = """
    DecodeRaw DenseBincount HashTableV2 LookupTableFindV2 LookupTableImportV2
    StringSplit StringSplitV2 UnsortedSegmentSum
"""
# For question answering.
_QUESTIONS = "Exp Pad ReverseV2 TopKV2 Unique UnsortedSegmentMax UnsortedSegmentMin"
# From TensorFlow Text; part of every TensorFlow Serving since 2.13.
_TENSORFLOW_TEXT = """
    NormalizeUTF8 SentencepieceOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp
"""
# A SavedModel reads its own variables with these. The loader determines the file
# names; no signature can change them.
_VARIABLES = """
    AssignVariableOp DisableCopyOnRead MergeV2Checkpoints ReadVariableOp RestoreV2
    SaveV2 ShardedFilename VarHandleOp VarIsInitializedOp
"""

ALLOWED_OPS = frozenset(
    " ".join(
        [
            _COMPUTE,
            _ALSO_COMPUTE,
            _STRUCTURE,
            _STRINGS,
            _BYTE_BPE,
            _QUESTIONS,
            _TENSORFLOW_TEXT,
            _VARIABLES,
        ]
    ).split()
)
