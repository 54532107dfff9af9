package dracheck

import "github.com/numalet/numalet/deviceplugin/check"

// Test makes all checks in a driver's own test. Each failed check is an error of the test, as it is if
// no claim could be prepared; warnings are logged.
func Test(t check.T, cfg Config) check.Report {
	t.Helper()
	report, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("the driver could not be checked: %v", err)
	}
	report.Tell(t)
	return report
}
