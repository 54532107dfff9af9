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

// Test makes all checks in a plugin's own test. Each failed check is an error of the test, as it is
// if devices could not be checked at all; warnings are logged.
func Test(t T, cfg Config) Report {
	t.Helper()
	report, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("the plugin could not be checked: %v", err)
	}
	report.Tell(t)
	return report
}

// Tell reports each result to a test: a failed check is an error, and so is a report in which neither
// devices nor claims were checked.
func (r Report) Tell(t T) {
	t.Helper()
	for _, result := range r.Results {
		name := result.Name
		if result.Resource != "" {
			name += " of " + result.Resource
		}
		switch result.Verdict {
		case Failed:
			t.Errorf("%s: %s\n%s", name, result.Happened, result.details())
		case Warning:
			t.Logf("%s: warning: %s\n%s", name, result.Happened, result.details())
		case Skipped:
			t.Logf("%s: %s", name, result.Happened)
		case Passed:
		}
	}
	if why := r.Unchecked(); why != "" {
		t.Errorf("neither devices nor claims were checked: %s", why)
	}
	t.Logf("%s", r.Summary())
}
