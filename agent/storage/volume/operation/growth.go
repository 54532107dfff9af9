package operation

// Growth says what came of an attempt to expand a volume that failed.
type Growth int

const (
	// GrowthUnknown: the attempt may still be under way, or could not begin.
	GrowthUnknown Growth = iota
	// GrowthFailed: it is over; a later one may succeed.
	GrowthFailed
	// GrowthUnfit: the volume does not grow while it is used.
	GrowthUnfit
	// GrowthInfeasible: the volume cannot have that size.
	GrowthInfeasible
	// GrowthUnable: nodes do not expand such volumes.
	GrowthUnable
)
