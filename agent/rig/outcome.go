package rig

import "time"

// Outcome is what became of a stream under one policy. Shares are of 1.
type Outcome struct {
	Policy   string   `json:"policy"`
	Settings Settings `json:"settings"`
	Pods     Pods     `json:"pods"`
	// Reasons say why pods were rejected, the most frequent first.
	Reasons   []Reason  `json:"reasons"`
	Placement Placement `json:"placement"`
	// Resources are cpu, memory and those of devices, over time.
	Resources []ResourceUse `json:"resources"`
	// Shapes are the kinds of pods, in the order of the workload.
	Shapes []ShapeCount `json:"shapes"`
	Series Series       `json:"series"`
	// Timing is the only part that differs from run to run.
	Timing *Timing `json:"timing,omitempty"`
}

// Settings are what the policy is, in the words of a KubeletConfiguration.
type Settings struct {
	// From is the file that it was read from, if it was.
	From            string   `json:"from,omitempty"`
	TopologyManager string   `json:"topologyManagerPolicy"`
	Scope           string   `json:"topologyManagerScope"`
	TopologyOptions []string `json:"topologyManagerPolicyOptions,omitempty"`
	CPUManager      string   `json:"cpuManagerPolicy"`
	CPUOptions      []string `json:"cpuManagerPolicyOptions,omitempty"`
	MemoryManager   string   `json:"memoryManagerPolicy"`
	// ReservedCPUs are never given out; empty: none are kept by number.
	ReservedCPUs string `json:"reservedCPUs"`
	// IsolatedCPUs are given to pods only that ask for them.
	IsolatedCPUs string `json:"isolatedCPUs,omitempty"`
	// AllocatableMillis and AllocatableBytes are what pods can request of CPUs and memory.
	AllocatableMillis int64 `json:"allocatableCPUMillis"`
	AllocatableBytes  int64 `json:"allocatableMemoryBytes"`
	// MaxPods is the most that run together; 0: no limit.
	MaxPods int64 `json:"maxPods"`
}

// Pods counts the pods of the stream. Arrived is the sum of Admitted, Rejected and Waiting.
type Pods struct {
	Arrived  int `json:"arrived"`
	Admitted int `json:"admitted"`
	Rejected int `json:"rejected"`
	// Waiting pods had no place yet when the stream ended.
	Waiting int `json:"waiting"`
	// Waited is how many of the admitted ones had to wait, MeanWait for how many seconds.
	Waited   int     `json:"waited"`
	MeanWait float64 `json:"meanWaitSeconds"`
	// AdmittedShare is Admitted of Arrived.
	AdmittedShare float64 `json:"admittedShare"`
	// Most is the largest number that ran together.
	Most int `json:"mostRunning"`
}

// Reason counts rejections. Of is the resource that was short, where one was.
type Reason struct {
	Reason string `json:"reason"`
	Of     string `json:"of,omitempty"`
	Count  int    `json:"count"`
}

// Placement is where admitted pods were put. Only what has a NUMA node counts: CPUs of their own,
// memory that was placed, and devices whose node is known.
type Placement struct {
	// Placed pods have something with a node; Aligned ones have all of it on one node.
	Placed  int `json:"placed"`
	Aligned int `json:"aligned"`
	// The same, container by container.
	PlacedContainers  int `json:"placedContainers"`
	AlignedContainers int `json:"alignedContainers"`
	// Spread counts the placed pods by the number of nodes, the first entry those of one node.
	Spread    []int   `json:"spread"`
	MeanNodes float64 `json:"meanNodes"`
	// MeanDistance is over the pairs of nodes of a pod, averaged over the placed pods (10 is
	// local); MostDistance the largest between two nodes of any pod.
	MeanDistance float64 `json:"meanDistance"`
	MostDistance int     `json:"mostDistance"`
	// AlignedShare is Aligned of Placed; 0 when no pod was placed.
	AlignedShare float64 `json:"alignedShare"`
}

// ResourceUse is one resource, averaged over the time up to the last arrival.
type ResourceUse struct {
	Resource string `json:"resource"`
	// Used is the share that running pods request.
	Used float64 `json:"used"`
	// Fragmentation is how much smaller the largest request that one node can take is than it
	// would be if what is free lay together, up to the size of the largest node; absent where
	// nothing is placed on nodes: cpu that all share, memory that is only counted. Memory and huge
	// pages of a node that a pod has together with another node are free, but no request for one
	// node gets them.
	Fragmentation *float64 `json:"fragmentation,omitempty"`
	// Stranded is the share of all devices that are free on a node without the CPUs that the
	// smallest container which asks for them needs; absent for cpu, memory and huge pages.
	Stranded *float64 `json:"stranded,omitempty"`
}

// ShapeCount is one kind of pod. AdmittedShare is Admitted of Arrived.
type ShapeCount struct {
	Name          string  `json:"name"`
	Arrived       int     `json:"arrived"`
	Admitted      int     `json:"admitted"`
	AdmittedShare float64 `json:"admittedShare"`
	Aligned       int     `json:"aligned"`
}

// Series is the run in equal parts of time, each value an average over its part.
type Series struct {
	// Step is the length of a part in seconds.
	Step  float64 `json:"stepSeconds"`
	Lines []Line  `json:"lines"`
}

// Line is one quantity over time: "running", "waiting", "used cpu", "fragmentation cpu", ...
type Line struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// Timing is what deciding took, in microseconds, on the machine that ran it.
type Timing struct {
	Decisions int     `json:"decisions"`
	Mean      float64 `json:"meanMicros"`
	P50       float64 `json:"p50Micros"`
	P90       float64 `json:"p90Micros"`
	P99       float64 `json:"p99Micros"`
	Max       float64 `json:"maxMicros"`
	// Wall is the whole run in seconds, with all that the rig does beside.
	Wall float64 `json:"wallSeconds"`
	// Histogram counts decisions by time: entry i those below 2^i microseconds and not in the
	// entry before.
	Histogram []int `json:"histogram"`
}

// Decision is one answer of the policy, for whoever follows a run.
type Decision struct {
	At time.Duration
	// Arrival is the pod's place in Stream.Arrivals.
	Arrival int
	// Kind is admitted, rejected, waits or left.
	Kind   string
	Reason Reason
	// Held is what the pod got or gave back, by container.
	Held []Holding
}

// Holding is what one container has.
type Holding struct {
	Container string `json:"container"`
	CPUs      string `json:"cpus,omitempty"`
	// MemoryNodes are those that its memory comes from, Memory how many bytes, by resource.
	MemoryNodes string              `json:"memoryNodes,omitempty"`
	Memory      map[string]uint64   `json:"memory,omitempty"`
	Devices     map[string][]string `json:"devices,omitempty"`
}

// Kinds of decisions.
const (
	Admitted = "admitted"
	Rejected = "rejected"
	Waits    = "waits"
	Left     = "left"
)
