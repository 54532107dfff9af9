package harness

import (
	"os"
	"time"
)

// Patience bounds every wait of a test. It is long because test machines are slow and shared, and
// longer with the race detector. No test measures time with it. NUMALET_PATIENCE overrides it, for
// emulated machines.
var Patience = patience()

func patience() time.Duration {
	if given, err := time.ParseDuration(os.Getenv("NUMALET_PATIENCE")); err == nil {
		return given
	}
	if raced {
		return 6 * time.Minute
	}
	return 3 * time.Minute
}
