"""When a training loop logs, saves and evaluates."""

import dataclasses


def usual_log_steps(num_train_steps: int) -> int:
    """Returns a number of steps between log lines that gives a short run a curve."""
    return max(1, min(100, num_train_steps // 20))


@dataclasses.dataclass(frozen=True)
class Intervals:
    """How long a run is, and after how many steps something is due.

    Args:
        num_train_steps: int. Number of updates of the whole run.
        log_steps: int. Steps between log lines.
        save_checkpoints_steps: int. Steps between checkpoints.
        eval_steps: int. Steps between evaluations; 0: only at the end.
        iterations_per_loop: int. Maximum number of steps per call of the graph.
    """

    num_train_steps: int
    log_steps: int = 100
    save_checkpoints_steps: int = 5000
    eval_steps: int = 0
    iterations_per_loop: int = 100

    def next_count(self, done: int) -> int:
        """Returns how many steps to train before something is due."""
        boundaries = [self.log_steps, self.save_checkpoints_steps]
        boundaries += [self.eval_steps] if self.eval_steps else []
        counts = [every - done % every for every in boundaries]
        return min(*counts, self.num_train_steps - done, self.iterations_per_loop)

    def log_is_due(self, done: int) -> bool:
        """Returns whether a log line is due after `done` steps."""
        return self._is_due(done, self.log_steps)

    def save_is_due(self, done: int) -> bool:
        """Returns whether a checkpoint is due after `done` steps."""
        return self._is_due(done, self.save_checkpoints_steps)

    def evaluation_is_due(self, done: int) -> bool:
        """Returns whether an evaluation is due after `done` steps."""
        return self._is_due(done, self.eval_steps)

    def _is_due(self, done: int, every: int) -> bool:
        at_end = done == self.num_train_steps
        return done > 0 and (at_end or bool(every) and done % every == 0)
