"""The losses of embeddings are still the ones of sentence-transformers.

`python -m tests.peers.embedding_losses_test` writes the golden file.
"""

import functools
import types

import numpy as np
import pytest

from tests.objectives.embedding_test import CASES, GOLDEN, E, inputs

pytest.importorskip("sentence_transformers")

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer import losses


class Layers(Transformer):
    """Gives the vectors that it is given as the hidden states of its layers."""

    def __init__(self):
        torch.nn.Module.__init__(self)
        self.transformer_task = "feature-extraction"
        self.model = types.SimpleNamespace(config=types.SimpleNamespace())
        self.model.config.output_hidden_states = False

    def get_embedding_dimension(self):
        return E

    def forward(self, features):
        layers = features["layers"]
        found = {"all_layer_embeddings": layers, "token_embeddings": layers[-1]}
        features.update(found)  # the library reads them there
        return features


class Vectors(torch.nn.Module):
    """Gives the hidden states of the last layer as vectors."""

    def forward(self, features):
        return {**features, "sentence_embedding": features["token_embeddings"]}


def loss_of(case, model):
    """Returns the library's loss of a case."""
    ranking, both, distill, matryoshka = (
        functools.partial(getattr(losses, name), model)
        for name in (
            *("MultipleNegativesRankingLoss", "MultipleNegativesSymmetricRankingLoss"),
            *("EmbedDistillLoss", "MatryoshkaLoss"),
        )
    )
    cosine, all_layers = losses.CosineSimilarityLoss(model), {"n_layers_per_step": -1}
    return {
        "one direction": ranking(),
        "both directions": both(),
        "negatives": ranking(),
        "negatives, both directions": both(scale=5.0),
        "cosent": losses.CoSENTLoss(model),
        "cosine": cosine,
        "distill, cosine": distill(),
        "distill, mse": distill("mse"),
        "matryoshka": matryoshka(ranking(), [2, 4], [0.5, 2.0]),
        "matryoshka, distill": matryoshka(distill("mse"), [2, 4]),
        "layers": losses.AdaptiveLayerLoss(model, cosine, **all_layers),
        "layers, matryoshka": losses.Matryoshka2dLoss(
            model, cosine, [2, 4], n_dims_per_step=-1, **all_layers
        ),
    }[case]


def compute(case):
    """Returns the library's loss and gradients of a case."""
    model = SentenceTransformer(modules=[Layers(), Vectors()])
    layers, labels = inputs(case)
    layers = torch.tensor(layers, requires_grad=True)
    columns = [{"layers": layers[:, :, k]} for k in range(layers.shape[2])]
    loss = loss_of(case, model)(columns, torch.tensor(labels))
    loss.backward()
    return {"loss": loss.detach().numpy(), "gradients": layers.grad.numpy()}


@pytest.mark.parametrize("case", CASES)
def test_the_golden_file_is_what_the_library_computes(case):
    golden = np.load(GOLDEN)
    for name, value in compute(case).items():
        np.testing.assert_allclose(golden[f"{case}/{name}"], value, 1e-6, 1e-6)


if __name__ == "__main__":
    everything = {f"{c}/{k}": v for c in CASES for k, v in compute(c).items()}
    np.savez_compressed(GOLDEN, **everything)
