//go:build postgres

package postgres_test

import (
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// TestLeaderConformance is the suite of a leader, but for what logs and files promise of
// themselves: here the transaction that acknowledges refuses what comes too late.
func TestLeaderConformance(t *testing.T) {
	storetest.RunOnly(t, func(t *testing.T) storetest.Harness {
		return &harness{Schema: pgtest.New(t), fs: disktest.NewMem(1), fail: new(disk.Failpoints)}
	}, "AsideForAReason", "AskedAgain", "ClosedForGood", "ClosedTaskRetires", "CommitAccountsForAll", "DeletedBodies", "FailedFoldChangesNothing", "ForgoneIDs", "FreezeWaits", "FrozenIsNotDeleted", "GivenUp", "HoldAfterRefusedJobs",
		"HoldAfterRefusedReports", "HoldByPerson", "HoldsAreLifted", "HugeInterval", "JobsFillBatches", "JobsKeepTheirSlices",
		"JobsTakeSlicesOfManyLogs", "KeptShares", "LeaderSelectedHolds", "LeaderSelectedWholeWay", "LeaderWholeWay", "LeasesFence", "Ledger",
		"LedgerOfSelectedBatches", "LeftoverIsBroughtTogether", "LostAnswers", "ManyRuns", "MinimumHolds", "NoEarlyRetirement", "OverlapIsRefused", "Park", "ParkedBatchIsPassedOver", "Quarantine", "Refused",
		"ReleaseOnce", "ReplayAcrossJobs", "RetiredTaskTakesNothing", "RetryBacksOff", "SentIsFixed", "SentSteps", "SetAside", "SharedJob", "SlicesAreListed",
		"SlicesMove", "TaskRaces", "TasksAreKept", "Usage",
		"Views", "ViewsAreOfTheTask", "ViewsEnd", "ViewsFromTheWidest", "ViewsRetire")
}
