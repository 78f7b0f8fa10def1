"""Every reason that Slurm has for a job that waits, and what becomes of the claim."""

from __future__ import annotations

import pytest

from coalloc.adapters.runner.command import CommandRefusedError
from coalloc.adapters.slurm.part_commands import WAITABLE, refusal
from coalloc.adapters.slurm.pending_reasons import HELD, NEVER, WAITS, fate_of, is_stuck
from coalloc.model.sites.parts import LASTING, OVER_LIMIT

REASONS = {
    WAITS: """
        PartitionDown PartitionInactive BeginTime AssociationJobLimit AssociationResourceLimit
        AssociationTimeLimit ReqNodeNotAvail FrontEndDown SchedDefer NodeDown SystemFailure
        NonZeroExitCode QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning
        QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit
        QOSGrpMemLimit QOSGrpNodeLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit
        QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit
        QOSMaxSubmitJobPerUserLimit AssocGrpCpuLimit AssocGrpCPUMinutesLimit
        AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit AssocGrpNodeLimit
        AssocGrpSubmitJobsLimit AssocGrpWallLimit AssocMaxJobsLimit AssocMaxSubmitJobLimit
        JobArrayTaskLimit BurstBufferResources BurstBufferStageIn BurstBufferOperation
        PowerNotAvail PowerReserved AssocGrpUnknown AssocGrpUnknownMinutes
        AssocGrpUnknownRunMinutes AssocGrpMemMinutes AssocGrpMemRunMinutes AssocGrpNodeMinutes
        AssocGrpNodeRunMinutes AssocGrpEnergy AssocGrpEnergyMinutes AssocGrpEnergyRunMinutes
        AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes AssocGrpLicense
        AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes AssocGrpBB AssocGrpBBMinutes
        AssocGrpBBRunMinutes QOSGrpUnknown QOSGrpUnknownMinutes QOSGrpUnknownRunMinutes
        QOSMaxUnknownPerUser QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes QOSMaxMemoryPerUser
        QOSGrpNodeMinutes QOSGrpNodeRunMinutes QOSGrpEnergy QOSGrpEnergyMinutes
        QOSGrpEnergyRunMinutes QOSMaxEnergyPerUser QOSGrpGRES QOSGrpGRESMinutes
        QOSGrpGRESRunMinutes QOSMaxGRESPerUser QOSGrpLicense QOSGrpLicenseMinutes
        QOSGrpLicenseRunMinutes QOSMaxLicensePerUser QOSGrpBB QOSGrpBBMinutes
        QOSGrpBBRunMinutes QOSMaxBBPerUser MaxBBPerAccount MaxCpuPerAccount
        MaxEnergyPerAccount MaxGRESPerAccount MaxNodePerAccount MaxLicensePerAccount
        MaxMemoryPerAccount MaxUnknownPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount
        PartitionConfig AccountingPolicy FedJobLock OutOfMemory AssocGrpBilling
        AssocGrpBillingMinutes AssocGrpBillingRunMinutes QOSGrpBilling QOSGrpBillingMinutes
        QOSGrpBillingRunMinutes QOSMaxBillingPerUser MaxBillingPerAccount None Prolog Priority
        Dependency Resources Licenses Reservation RaisedSignal TimeLimit InactiveLimit
        Constraints
    """,
    NEVER: """
        PartitionNodeLimit PartitionTimeLimit BadConstraints InvalidAccount InvalidQOS
        QOSNotAllowed AccountNotAllowed DependencyNeverSatisfied QOSMaxCpuPerJobLimit
        QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit
        QOSMinCpuNotSatisfied AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit
        AssocMaxNodePerJobLimit AssocMaxUnknownPerJob AssocMaxUnknownPerNode
        AssocMaxUnknownMinutesPerJob AssocMaxCpuPerNode AssocMaxMemPerJob AssocMaxMemPerNode
        AssocMaxMemMinutesPerJob AssocMaxNodeMinutesPerJob AssocMaxEnergyPerJob
        AssocMaxEnergyPerNode AssocMaxEnergyMinutesPerJob AssocMaxGRESPerJob
        AssocMaxGRESPerNode AssocMaxGRESMinutesPerJob AssocMaxLicensePerJob
        AssocMaxLicenseMinutesPerJob AssocMaxBBPerJob AssocMaxBBPerNode
        AssocMaxBBMinutesPerJob QOSMaxUnknownPerJob QOSMaxUnknownPerNode
        QOSMaxUnknownMinutesPerJob QOSMinUnknown QOSMaxCpuPerNode QOSMaxMemoryPerJob
        QOSMaxMemoryPerNode QOSMaxMemoryMinutesPerJob QOSMinMemory QOSMaxNodeMinutesPerJob
        QOSMinNode QOSMaxEnergyPerJob QOSMaxEnergyPerNode QOSMaxEnergyMinutesPerJob
        QOSMinEnergy QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESMinutesPerJob QOSMinGRES
        QOSMaxLicensePerJob QOSMaxLicenseMinutesPerJob QOSMinLicense QOSMaxBBPerJob
        QOSMaxBBPerNode ReservationDeleted QOSMinBB DeadLine MaxMemPerLimit
        AssocMaxBillingPerJob AssocMaxBillingPerNode AssocMaxBillingMinutesPerJob
        QOSMaxBillingPerJob QOSMaxBillingPerNode QOSMaxBillingMinutesPerJob QOSMinBilling
        AssocMaxWallDurationPerJobLimit ReservationInvalid
    """,
    HELD: """
        JobHeldAdmin JobHeldUser JobLaunchFailure JobHoldMaxRequeue
    """,
}
"""Of ``job_state_reason_string``, from 22.05 to 25.05."""


@pytest.mark.parametrize("fate", REASONS)
def test_a_limit_of_the_moment_is_waited_for_and_what_is_invalid_is_not(fate: str) -> None:
    for word in REASONS[fate].split():
        found, reason = fate_of(word)
        assert found == fate, word
        assert (reason in WAITABLE) is (fate == WAITS), word
        assert is_stuck(word) is (fate == NEVER), word
        if fate == WAITS:
            assert reason not in LASTING, word


@pytest.mark.parametrize(
    ("said", "fate"),
    [
        ("ReqNodeNotAvail,_UnavailableNodes:n1", WAITS),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", WAITS),
        ("launch_failed_requeued_held", HELD),
        ("NobodyHasSeenThisBefore", WAITS),
    ],
)
def test_words_with_more_behind_them(said: str, fate: str) -> None:
    assert fate_of(said)[0] == fate


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        # As 22.05 refuses one job too many: its words speak of time limits, too.
        (
            "AssocMaxSubmitJobLimit; Batch job submission failed: Job violates accounting/QOS "
            "policy (job submit limit, user's size and/or time limits)",
            OVER_LIMIT,
        ),
        # A QOS with DenyOnLimit.
        ("QOSMaxCpuPerJobLimit; Job violates accounting/QOS policy", "not_permitted"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "bad_time_limit"),
        ("Invalid license specification", "not_permitted"),
        ("Requested nodes are busy", "nodes_taken"),
    ],
)
def test_refusals(said: str, reason: str) -> None:
    assert refusal(CommandRefusedError("sbatch", said, 1)) == reason
