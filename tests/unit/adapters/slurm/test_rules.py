"""Partitions, associations and QOS as Slurm 22.05 tells them, as rules for planning."""

from __future__ import annotations

import grp

import pytest

from coalloc.adapters.slurm.parsers.records import NodeRecord, ParseError
from coalloc.adapters.slurm.parsers.rules import (
    enforced,
    parse_licenses,
    parse_manager,
    parse_partitions,
)
from coalloc.adapters.slurm.parsers.text import parse_node_list
from coalloc.adapters.slurm.rules import MOST_ASSOCIATIONS, site_rules
from coalloc.adapters.slurm.settings import SlurmSettings
from coalloc.model.sites.site_rules import Association, Limits, SiteRules

NONE = "GrpTRES=cpu=N(0),mem=N(0),node=N(0) MaxJobs= MaxWallPJ= MaxTRESPJ= MaxTRESPN="
MANAGER = f"""\
Current Association Manager state
Association Records
ClusterName=a Account=root UserName= Partition= Priority=0 ID=1 ParentAccount= DefAssoc=No {NONE}
ClusterName=a Account=bio UserName= Partition= ID=4 ParentAccount=root(1) DefAssoc=No \
GrpTRES=cpu=8(2),mem=N(0),node=N(0) GrpTRESMins=cpu=N(0) MaxJobs= MaxWallPJ= MaxTRESPJ=
ClusterName=a Account=bio UserName=ann(33) Partition= ID=6 ParentAccount= DefAssoc=No \
GrpTRES=cpu=12(0),mem=N(0),node=N(0) MaxJobs= MaxWallPJ= MaxTRESPJ=
ClusterName=a Account=chem UserName= Partition= ID=3 ParentAccount=root(1) DefAssoc=No {NONE}
ClusterName=a Account=chem UserName=ann(33) Partition= ID=5 ParentAccount= DefAssoc=Yes \
GrpTRES=cpu=N(0),mem=N(0),node=N(0) MaxJobs=5(0) MaxWallPJ=60 MaxTRESPJ=node=3 MaxTRESPN=
QOS Records
QOS=normal(1) UsageRaw=0.000000 {NONE}
QOS=high(2) UsageRaw=0.0 GrpTRES=cpu=12(0),node=N(0) MaxWallPJ=10 MaxTRESPJ=cpu=8,node=2 MaxTRESPN=
"""
PARTITIONS = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES \
QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 Nodes=a[1-4] State=UP
PartitionName=short AllowGroups=ALL AllowAccounts=chem,bio DenyQos=low Default=NO QoS=high \
DefaultTime=00:02:00 MaxNodes=1 MaxTime=00:05:00 MinNodes=1 Nodes=a[1-2] State=DOWN
PartitionName=vip AllowGroups=root DenyAccounts=bio AllowQos=high Default=NO QoS=N/A \
DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0 Nodes=a3 State=UP
PartitionName=ours AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=NO State=DOWN
"""
ALL = frozenset({"associations", "limits", "qos"})
NODES = (NodeRecord(name="a1", cpus=4), NodeRecord(name="a2", cpus=8))


def rules(words: frozenset[str] = ALL, *, manager: str = MANAGER, **given: str) -> SiteRules:
    site = SlurmSettings(cluster="a", handover_partition="ours", **given)  # type: ignore[arg-type]
    parsed = parse_manager(manager) if manager else None
    return site_rules(site, parse_partitions(PARTITIONS), NODES, parsed, words)


def test_partitions_as_rules() -> None:
    found = rules()
    main, short, vip = found.partitions  # the one for hand-over takes none of our parts
    assert found.usual.partition == "main"
    assert (main.limits, main.accounts, main.gids) == (Limits(), None, None)
    assert short.limits == Limits(time_s=300.0, nodes=1, least_nodes=1)
    assert (short.state, short.qos, short.default_time_s) == ("DOWN", "high", 120.0)
    assert (short.accounts, short.denied_qos) == (("chem", "bio"), ("low",))
    assert (vip.denied_accounts, vip.allowed_qos) == (("bio",), ("high",))
    assert vip.gids == (grp.getgrnam("root").gr_gid,)


def test_limits_on_memory_and_gres() -> None:
    text = MANAGER.replace(
        "MaxTRESPJ=cpu=8,node=2 MaxTRESPN=",
        "MaxTRESPJ=cpu=8,node=2,gres/gpu=4 MaxTRESPN= Priority=0 Account Limits=No Accounts "
        "User Limits= 7={MaxJobsPU=N(1) MaxTRESPU=cpu=N(1),mem=9000(0),gres/gpu=3(0)}",
    ).replace("GrpTRES=cpu=8(2),mem=N(0)", "GrpTRES=cpu=8(2),mem=4000(1000),gres/gpu:a100=2(1)")
    found = rules(manager=text)
    assert found.qos["high"].resources == {"gpu": 3, "mem": 9000}
    assert found.associations is not None
    assert found.associations[0].limits.resources == {"mem": 4000, "gpu:a100": 2}
    left = {(room.what, room.left, room.why) for room in found.rooms if room.what != "cpu"}
    assert left == {
        ("mem", 3000, "1000 of 4000 MiB of account bio are taken (GrpTRES)"),
        ("gpu:a100", 1, "1 of 2 gpu:a100 of account bio are taken (GrpTRES)"),
    }


def test_limits_are_in_whole_nodes_or_in_cpus() -> None:
    assert rules(slots="cpus").qos["high"] == Limits(time_s=600.0, nodes=2, procs=8)
    assert rules().qos["high"] == Limits(time_s=600.0, nodes=2)  # 8 CPUs: two nodes of 4
    assert rules().qos["normal"] == Limits()


def test_associations_have_the_limits_of_the_accounts_above_them() -> None:
    assert rules(slots="cpus").associations == (
        Association(account="bio", user="ann", limits=Limits(procs=8)),
        Association(
            account="chem", user="ann", is_default=True, limits=Limits(time_s=3600.0, nodes=3)
        ),
    )


def test_only_what_is_enforced_counts() -> None:
    text = "AccountingStorageEnforce = associations,limits,qos\nAccountingStorageHost = x\n"
    assert enforced(text) == ALL
    assert enforced("AccountingStorageEnforce = none\n") == {"none"}
    assert rules(frozenset({"none"})).associations is None
    assert rules(manager="").associations is None
    unlimited = rules(frozenset({"associations"}))
    assert unlimited.qos == {}
    assert unlimited.associations is not None
    assert all(each.limits == Limits() for each in unlimited.associations)


def test_associations_that_are_too_many_or_of_partitions_are_learnt() -> None:
    head, line = MANAGER.split("QOS Records")[0], "ClusterName=a Account=chem UserName=u{n}(1) "
    many = head + "".join(line.format(n=n) + NONE + "\n" for n in range(MOST_ASSOCIATIONS))
    assert rules(manager=many).associations is None
    of_partition = MANAGER.replace(
        "UserName=ann(33) Partition= ", "UserName=ann(33) Partition=vip "
    )
    assert rules(manager=of_partition).associations is None


USED = """\
Current Association Manager state
ClusterName=a Account=root UserName= ParentAccount= DefAssoc=No GrpJobs=N(4) MaxJobs=
ClusterName=a Account=bio UserName= ParentAccount=root(1) DefAssoc=No GrpJobs=9(9) \
GrpTRES=cpu=N(4),mem=4(4),node=N(2) MaxJobs=
ClusterName=a Account=bio UserName=ann(999) ParentAccount= DefAssoc=Yes GrpJobs=N(3) \
GrpTRES=cpu=8(2),node=N(2) MaxJobs=2(1) MaxSubmitJobs=2(5)
QOS=tiny(2) GrpJobs=N(2) GrpTRES=cpu=12(4),mem=N(0),node=3(2) MaxWallPJ= Priority=0 \
Account Limits= chem={MaxJobsPA=N(2) MaxTRESPA=cpu=N(2)} bio={MaxJobsPA=4(4) MaxTRESPA=cpu=N(2)} \
User Limits= 999={MaxJobsPU=2(2) MaxSubmitJobsPU=N(3) MaxTRESPU=cpu=4(0)} 7={MaxJobsPU=2(2)}
"""
"""As 22.05 shows what is used."""


def test_what_is_used_of_limits() -> None:
    def left(slots: str = "node") -> dict[str, int]:
        return {room.why: room.left for room in rules(manager=USED, slots=slots).rooms}

    mine = {"9 of 9 jobs of account bio run (GrpJobs)": 0}
    of_qos = {
        "4 of 4 jobs of QOS tiny run (MaxJobsPerAccount)": 0,
        "2 of 2 jobs of QOS tiny run (MaxJobsPerUser)": 0,
    }
    cpus = "2 of 8 CPUs of ann in account bio are taken (GrpTRES)"
    tiny = "4 of 12 CPUs of QOS tiny are taken (GrpTRES)"
    mine["4 of 4 MiB of account bio are taken (GrpTRES)"] = 0
    assert left(slots="cpus") == {tiny: 8, **of_qos, cpus: 6, **mine}
    nodes = {"2 of 3 nodes of QOS tiny are taken (GrpTRES)": 1}
    assert left() == {tiny: 2, **nodes, **of_qos, cpus: 1, **mine}
    whose = {room.why: (room.qos, room.account, room.user) for room in rules(manager=USED).rooms}
    assert whose["2 of 2 jobs of QOS tiny run (MaxJobsPerUser)"] == ("tiny", "", "ann")
    assert whose["4 of 4 jobs of QOS tiny run (MaxJobsPerAccount)"] == ("tiny", "bio", "")
    assert whose["9 of 9 jobs of account bio run (GrpJobs)"] == ("", "bio", "ann")
    assert rules(frozenset({"associations"}), manager=USED).rooms == ()
    assert rules(frozenset({"associations", "qos"}), manager=USED).qos == {"tiny": Limits()}


def test_licences() -> None:
    text = "LicenseName=m Total=2 Used=1 Free=1 Reserved=0 Remote=no\n\n"
    assert parse_licenses(text) == {"m": (2, 1)}
    assert parse_licenses("No licenses configured in Slurm.\n") == {}
    with pytest.raises(ParseError):
        parse_licenses("LicenseName=m Total=2 Used=1\n")


def test_senseless_answers() -> None:
    with pytest.raises(ParseError):
        parse_manager("slurm_load_assoc_mgr_info error: Access/permission denied\n")


def test_generic_resources_of_nodes() -> None:
    line = "NodeName=a3 CPUTot=4 State=IDLE Gres={} Weight=100 NodeAddr=127.0.0.1\n"
    text = line.format("gpu:a100:4(S:0-1),gpu:v100:2,fast,nic:1")
    (node,) = parse_node_list(text)
    assert node.gres == {"gpu": 6, "gpu:a100": 4, "gpu:v100": 2, "fast": 1, "nic": 1}
    assert node.weight == 100
    (node,) = parse_node_list(
        line.format("bandwidth:lustre:no_consume:4G,mps:no_consume:2k,x:1g.5gb")
    )
    assert node.gres["bandwidth:lustre"] == 4 << 30
    assert (node.gres["mps"], node.gres["x:1g.5gb"]) == (2048, 1)
    assert parse_node_list(line.format("(null)"))[0].gres == {}
