package check

import "context"

// T is the part of *testing.T that [Test] needs.
type T interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Test makes all checks in a plugin's own test. Each failed check is an error of the test; warnings
// are logged.
func Test(t T, cfg Config) Report {
	t.Helper()
	report, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("the plugin could not be checked: %v", err)
	}
	for _, r := range report.Results {
		switch r.Verdict {
		case Failed:
			t.Errorf("%s: %s\n%s", r.Name, r.Happened, r.details())
		case Warning:
			t.Logf("%s: warning: %s\n%s", r.Name, r.Happened, r.details())
		case Skipped:
			t.Logf("%s: %s", r.Name, r.Happened)
		case Passed:
		}
	}
	t.Logf("%s", report.Summary())
	return report
}
