"""What the parts on convolutional networks measure: the quick profile's, without batch norm."""

from dataclasses import dataclass

from paperlib.experiments import conv_runs
from paperlib.training import data
from paperlib.training.runs import Spec

MEAN, STD = data.CONSTANTS["cifar10"]


@dataclass(frozen=True)
class Subject:
    """A network of `vgg.VGGS` or `resnet.RESNETS` on CIFAR-10, and its initial learning rate."""

    network: str
    base_width: int
    lr: float

    @property
    def title(self) -> str:
        return f"{self.network}, base width {self.base_width}"

    def spec(self, precision: str = "float32") -> Spec:
        """Network and recipe of the quick profile, for one epoch."""
        return conv_runs.spec(
            self.network,
            base_width=self.base_width,
            lr=self.lr,
            epochs=1,
            train_images=None,
            seed=0,
            precision=precision,
            augment=False,
        )


RESNET = Subject("resnet18", 8, 0.1)
VGG = Subject("vgg16", 16, 0.05)
