"""Sizes and SHA-256 of published raw files, by folder: what a file must be before it is read.

Planetoid's files are pickles, which can carry code: those are refused unless they are listed here.
Sources: kimiyoung/planetoid af6abf46, graphdml-uiuc-jlu/geom-gcn f1fc0d14, CUAI/Non-Homophily-
Large-Scale 82f8f05c, yandex-research/heterophilous-graphs a4313955, and benedekrozemberczki/MUSAE
f9012329 repacked without names; of images the four files of MNIST, and CIFAR-10 as JPEG (YoongiKim/
CIFAR-10-images d7d05618) and as pixels (karpathy/convnetjs 39afa8cd), either repacked as one file.
`ind.pubmed.allx` was pinned without the file at hand; its git blob id from the same repository is
accepted as well.
"""
# ruff: noqa: E501
# fmt: off

from __future__ import annotations

SHA256: dict[str, dict[str, tuple[int, str]]] = {
    "Actor/raw": {
        "film_split_0.6_0.2_0.npz": (4214, "4505a41d4e90abd94d1ec22571ce528b09ad7cf20d87f764aebd4177590767f5"),
        "film_split_0.6_0.2_1.npz": (4231, "1871b0d24e3977c41e378fd24acc8025b63f86b77739be77a5b558d1287f207d"),
        "film_split_0.6_0.2_2.npz": (4224, "d26680e911ef3ecc9fc2a26d90c9d35028c63aadd7a5aea774649d1496c282cb"),
        "film_split_0.6_0.2_3.npz": (4207, "6755ad5f6a0be8594b344af3d2261eed935b83b73c4d70136e1a7beea7f78cb0"),
        "film_split_0.6_0.2_4.npz": (4233, "328fdca62b25074f21f2922518e042f24b3b8a1fc378f9dfb2cae36439aed902"),
        "film_split_0.6_0.2_5.npz": (4224, "5b3161a8dc8de4b2e651ebd56d68e768d1377044895b325566117fe26ab81cb7"),
        "film_split_0.6_0.2_6.npz": (4221, "e251b38abd4d7931b5e9ae5aba99dcdf87f0be283bdf6e65421274a1c9ef1df6"),
        "film_split_0.6_0.2_7.npz": (4205, "12164ef9f5620a2f12a387f4f2b8636859d42201101d6d32829ade62d5a98326"),
        "film_split_0.6_0.2_8.npz": (4217, "405cd1f7f631f678119f8bf2405809e86614d532985beb59566fcf95abd35b3f"),
        "film_split_0.6_0.2_9.npz": (4208, "505691c5d41bb37b20d085415dcdde2e8e68b5bc4e1feb2c0e361308002012bb"),
        "out1_graph_edges.txt": (323820, "997cdce67ea9c29257d3ffe796328391931901cf823830affa453178b60e2c3e"),
        "out1_node_feature_label.txt": (207718, "1d5cdd094f8b91e770f6decfca85b35cf42f75d1efb51055fd6af16e11820ff8"),
    },
    "CIFAR10": {
        "cifar10_jpeg75_full.npz": (18385332, "8c7685ce1597e318b944eb6a8b5e74e6b3cab05568266cb5412a23f95040b85c"),
        "cifar10_lossless_train4000.npz": (11335535, "3da51e4a57311a06ac8b64c48981a8912f2f4dcd5bff848a3bc8f21ed54d0591"),
    },
    "HeterophilousGraphDataset/chameleon_filtered/raw": {
        "chameleon_filtered.npz": (58924, "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5"),
    },
    "HeterophilousGraphDataset/minesweeper/raw": {
        "minesweeper.npz": (135045, "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3"),
    },
    "HeterophilousGraphDataset/squirrel_filtered/raw": {
        "squirrel_filtered.npz": (208215, "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7"),
    },
    "MNIST/raw": {
        "t10k-images-idx3-ubyte.gz": (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        "t10k-labels-idx1-ubyte.gz": (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        "train-images-idx3-ubyte.gz": (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        "train-labels-idx1-ubyte.gz": (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    },
    "HeterophilousGraphDataset/tolokers/raw": {
        "tolokers.npz": (1329769, "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"),
    },
    "LINKXDataset/amherst41/raw": {
        "data.mat": (333541, "3108e4b2edb01be05c5a61147583a40e61012820fff7eebe621dd26018caaf00"),
    },
    "LINKXDataset/cornell5/raw": {
        "data.mat": (3543757, "d9ff76ae34e855cb77b0779a3a320f7f73f848901cb13352e2734c17804c4aec"),
    },
    "LINKXDataset/johnshopkins55/raw": {
        "data.mat": (735150, "fc7243bf257155df03afbc397ab34b5f8eb8e75f40cd1603398e207a033ef50f"),
    },
    "LINKXDataset/reed98/raw": {
        "data.mat": (70347, "d12ec74dc8c6e237385975b976c3709555a83629a1260be693fb688e3446070e"),
    },
    "MUSAE_Facebook": {
        "facebook_pagepage.npz": (874572, "f0741bd5795a348cae0a6a52f3b81dd6ad918259a694f48f2b4dc2d424d8ac94"),
    },
    "Planetoid/CiteSeer/raw": {
        "ind.citeseer.allx": (595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
        "ind.citeseer.ally": (55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
        "ind.citeseer.graph": (61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
        "ind.citeseer.test.index": (5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
        "ind.citeseer.tx": (260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
        "ind.citeseer.ty": (24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
        "ind.citeseer.x": (31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
        "ind.citeseer.y": (3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
    },
    "Planetoid/Cora/raw": {
        "ind.cora.allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
        "ind.cora.ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
        "ind.cora.graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
        "ind.cora.test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
        "ind.cora.tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
        "ind.cora.ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
        "ind.cora.x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
        "ind.cora.y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
    },
    "Planetoid/PubMed/raw": {
        "ind.pubmed.allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
        "ind.pubmed.ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
        "ind.pubmed.graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
        "ind.pubmed.test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
        "ind.pubmed.tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
        "ind.pubmed.ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
        "ind.pubmed.x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
        "ind.pubmed.y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
    },
    "WebKB/cornell/raw": {
        "cornell_split_0.6_0.2_0.npz": (704, "14022a1e19ec7fc0a07a2c06a785a2f9dc52809dbcd1c14fc318f7800675d73f"),
        "cornell_split_0.6_0.2_1.npz": (700, "5568fa27e968a724c92211bf97026a36a08893cf94b218043e49b4c973c35cfb"),
        "cornell_split_0.6_0.2_2.npz": (695, "763fc1f423395e4172617fa5b6bc0d7adad2241e5fedd1a4f0a098a67f9dc8e9"),
        "cornell_split_0.6_0.2_3.npz": (701, "4334321cd9ec42de9d51107fb9a6dc310512e0921bc1cff0f390301ee37315fa"),
        "cornell_split_0.6_0.2_4.npz": (759, "2b6b3ef396f4dc7fcdc276fb16b88bb87409b25879dd672b3a506eca844dd8d7"),
        "cornell_split_0.6_0.2_5.npz": (754, "1a40ef8b20aa9e1aa850e1abdaba3efac1f66c98ef2c6a59eadefa21136ece6b"),
        "cornell_split_0.6_0.2_6.npz": (758, "bcddf4ab59eae4c7d47b8a6cec9025a54ec0e6d3f3bdcd7678e201f25ace4642"),
        "cornell_split_0.6_0.2_7.npz": (693, "2b497e12dfc123d7e7c9bb4fc4a82b5bee18409e109a3e3a04da439cacec964d"),
        "cornell_split_0.6_0.2_8.npz": (701, "5c4e110d252d7ad156b2e4cd34b6dbd1cecbcc1755f8d72e932cc2a54f2b643c"),
        "cornell_split_0.6_0.2_9.npz": (704, "80f1531807194d301affbf6f879a4ab4f56a19bdccb62d192e3ecd1b5275f052"),
        "out1_graph_edges.txt": (2001, "c4522a00cc40873c8a04a3a07c49e24a48a507eb284ac9c9f2d3e0590351bbb7"),
        "out1_node_feature_label.txt": (624308, "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3"),
    },
    "WebKB/texas/raw": {
        "out1_graph_edges.txt": (2172, "0fe85183243a78cbee9b85a684f8240963d04d1020d10e9cd2b8cfb25e33b476"),
        "out1_node_feature_label.txt": (624308, "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3"),
        "texas_split_0.6_0.2_0.npz": (698, "7ba77bf7a8856fcc0ab15623a611b8cdce994e820f577da914123fb4f45272b0"),
        "texas_split_0.6_0.2_1.npz": (701, "21cc244a96e3c51ad7993afb4dd227f90e467d82b964bb42d7d9fc500a6ef87f"),
        "texas_split_0.6_0.2_2.npz": (756, "b9e96a699ccf3a4c31ffbd03e52b25570889833425d20fa44e06c37b327cf61e"),
        "texas_split_0.6_0.2_3.npz": (759, "1a7deeb1285009789d5e6045d7e39f7d019c9223d9a75a2b7ce5e26d33b51f63"),
        "texas_split_0.6_0.2_4.npz": (702, "b5419ff3fe31adcae66fdb085d4f47d0b188e9436ab59f438632af969aafc674"),
        "texas_split_0.6_0.2_5.npz": (691, "68405fd1b9ff6105d99717220ecbd198785e338bf4a73abee722bbc9703d2667"),
        "texas_split_0.6_0.2_6.npz": (756, "8ad78b973164e70e5ac0d282e79adcbc6006e373909fbdfd72a13131e09040b8"),
        "texas_split_0.6_0.2_7.npz": (693, "a84bcbf997365bddf5fdf72ed49dc7e435e475f8c6210f8cdee7c8581a2bd6df"),
        "texas_split_0.6_0.2_8.npz": (762, "65ba65f296f91d40d2d7d3c9369b67415094a7e254c6eee48cd6d6531c586fdf"),
        "texas_split_0.6_0.2_9.npz": (693, "4306981d654ad8835c000c1f73fb6c1e60dfe99e26c13a6073f3b0f4cc3ce6ee"),
    },
    "WebKB/wisconsin/raw": {
        "out1_graph_edges.txt": (3606, "ebd213511c88fce1eda450c2f920600c4b8cbb38f02384856bcc47c6ec1807ae"),
        "out1_node_feature_label.txt": (856324, "a32b0aa38d42f0d36841e8a8cb646d197f0ff33a182ac75a2b4476aeed3c7e4b"),
        "wisconsin_split_0.6_0.2_0.npz": (805, "f66f641e191d35d491cd3b63d6c2cd93c4b436da398984b44c19a8d4d7e7b1a5"),
        "wisconsin_split_0.6_0.2_1.npz": (739, "534aeb97266bd5a85a8587adf8eebad3f2e001c1240610f24b62c0ad0c2466ee"),
        "wisconsin_split_0.6_0.2_2.npz": (747, "047a5b641778ec3a4c76055fd7f18ecb2424c0952f20dfff7e1b17749d8acbdd"),
        "wisconsin_split_0.6_0.2_3.npz": (810, "706c27b4c51d046c0316f1e915f093e4a1fff48b3436b3e7c421eab596a99e77"),
        "wisconsin_split_0.6_0.2_4.npz": (812, "7ee813605eec086457aaff022cf3837f2f893fcf8bd37e3a8d2ff0c80e4c4f87"),
        "wisconsin_split_0.6_0.2_5.npz": (749, "8094ac2bdaf2cbea8f7a48df66a0800c809b2fd5942740e6b0441b660d3a0dd5"),
        "wisconsin_split_0.6_0.2_6.npz": (735, "c423a8deea9b18f9ecb6cfd703578e2159df167de01fe7e6195b88995010252d"),
        "wisconsin_split_0.6_0.2_7.npz": (733, "57ad808c8d4dd94dc4404124370bbcebb3dcc597c2bea6457bf05f220adf1527"),
        "wisconsin_split_0.6_0.2_8.npz": (741, "27d4d62a2a6aea2cdc399302237512ab0d64fb0c84e648112f97c5896274e42f"),
        "wisconsin_split_0.6_0.2_9.npz": (744, "3c149cd124a19021031609e0d7743a7be59aae4f88c8d38410138e8f06f5daaf"),
    },
}

GIT_BLOB: dict[str, dict[str, str]] = {
    "Planetoid/PubMed/raw": {"ind.pubmed.allx": "3b86bccf08111c37c632a9dd8ab63db25ea76361"},
}
