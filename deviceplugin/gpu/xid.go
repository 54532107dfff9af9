package gpu

// Class says what an XID means for the GPU.
type Class string

const (
	// Application: an error of a program; the GPU works on.
	Application Class = "application"
	// Readable: readings show the fault, and its end.
	Readable Class = "readable"
	// Fatal: the GPU has to be reset.
	Fatal Class = "fatal"
)

// xidInfo describes an XID.
type xidInfo struct {
	class Class
	text  string
}

// xids holds the XIDs that NVIDIA documents. Any other is Fatal: the unknown is not trusted.
var xids = map[uint64]xidInfo{
	48:  {Readable, "double bit ECC error"},
	63:  {Readable, "memory row to be remapped"},
	64:  {Readable, "memory row could not be remapped"},
	74:  {Readable, "NVLink error"},
	79:  {Readable, "GPU has fallen off the bus"},
	92:  {Readable, "high single bit ECC error rate"},
	94:  {Application, "contained memory error"},
	95:  {Readable, "uncontained memory error"},
	46:  {Fatal, "GPU stopped processing"},
	54:  {Fatal, "auxiliary power is not connected"},
	56:  {Fatal, "display engine error"},
	57:  {Fatal, "memory interface error"},
	58:  {Fatal, "unstable video memory interface"},
	61:  {Fatal, "internal microcontroller breakpoint"},
	62:  {Fatal, "internal microcontroller halt"},
	110: {Fatal, "security fault"},
	119: {Fatal, "GSP RPC timeout"},
	120: {Fatal, "GSP error"},
	136: {Fatal, "link training failed"},
	140: {Fatal, "unrecovered ECC error"},
	143: {Fatal, "GPU initialization failure"},

	// Errors of programs.
	8:   {Application, "GPU stopped processing a channel"},
	13:  {Application, "graphics engine exception"},
	31:  {Application, "GPU memory page fault"},
	32:  {Application, "invalid or corrupted push buffer stream"},
	43:  {Application, "GPU stopped processing"},
	44:  {Application, "graphics engine fault during context switch"},
	45:  {Application, "preemptive cleanup, due to previous errors"},
	68:  {Application, "video processor exception"},
	69:  {Application, "graphics engine class error"},
	109: {Application, "context switch timeout"},
}

// classOf returns the class of an XID and its meaning.
func classOf(xid uint64) (Class, string) {
	if info, known := xids[xid]; known {
		return info.class, info.text
	}
	return Fatal, "an error that this version does not know"
}
