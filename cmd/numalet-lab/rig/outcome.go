package rig

import "time"

// Outcome is the result of a stream under one policy. Shares are fractions of 1.
type Outcome struct {
	Policy   string   `json:"policy"`
	Settings Settings `json:"settings"`
	Pods     Pods     `json:"pods"`
	// Reasons counts the reasons of rejections, the most frequent first.
	Reasons   []Reason  `json:"reasons"`
	Placement Placement `json:"placement"`
	// Resources holds cpu, memory and the device resources, averaged over time.
	Resources []ResourceUse `json:"resources"`
	// Resizes is absent if no pod of the workload grows or shrinks.
	Resizes *Resizes `json:"resizes,omitempty"`
	// Shapes holds the kinds of pods, in the order of the workload.
	Shapes []ShapeCount `json:"shapes"`
	Series Series       `json:"series"`
	// Timing is the only part that differs between runs.
	Timing *Timing `json:"timing,omitempty"`
}

// Settings describes the policy in the words of a KubeletConfiguration.
type Settings struct {
	// From is the file that the policy was read from, if any.
	From            string   `json:"from,omitempty"`
	TopologyManager string   `json:"topologyManagerPolicy"`
	Scope           string   `json:"topologyManagerScope"`
	TopologyOptions []string `json:"topologyManagerPolicyOptions,omitempty"`
	CPUManager      string   `json:"cpuManagerPolicy"`
	CPUOptions      []string `json:"cpuManagerPolicyOptions,omitempty"`
	MemoryManager   string   `json:"memoryManagerPolicy"`
	// PodLevel is the gate of that name: pods with pod-level resources can have CPUs and memory of their own.
	PodLevel bool `json:"podLevelResourceManagers,omitempty"`
	// ReservedCPUs are never given out; empty: no particular CPUs are reserved.
	ReservedCPUs string `json:"reservedCPUs"`
	// IsolatedCPUs are given only to pods that ask for them.
	IsolatedCPUs string `json:"isolatedCPUs,omitempty"`
	// AllocatableMillis and AllocatableBytes are the CPUs and memory that pods can request.
	AllocatableMillis int64 `json:"allocatableCPUMillis"`
	AllocatableBytes  int64 `json:"allocatableMemoryBytes"`
	// MaxPods bounds the pods that run at a time; 0: no bound.
	MaxPods int64 `json:"maxPods"`
}

// Pods counts the pods of the stream. Arrived is the sum of Admitted, Rejected and Waiting.
type Pods struct {
	Arrived  int `json:"arrived"`
	Admitted int `json:"admitted"`
	Rejected int `json:"rejected"`
	// Waiting pods had no place yet when the stream ended.
	Waiting int `json:"waiting"`
	// Waited counts the admitted pods that had to wait, MeanWait is their mean wait in seconds.
	Waited   int     `json:"waited"`
	MeanWait float64 `json:"meanWaitSeconds"`
	// AdmittedShare is Admitted divided by Arrived.
	AdmittedShare float64 `json:"admittedShare"`
	// Most is the highest number of pods that ran at a time.
	Most int `json:"mostRunning"`
}

// Reason counts rejections. Of names the scarce resource, if there was one.
type Reason struct {
	Reason string `json:"reason"`
	Of     string `json:"of,omitempty"`
	Count  int    `json:"count"`
}

// Placement tells where admitted pods were placed. Only resources with a NUMA node count: exclusive
// CPUs, placed memory, and devices whose node is known.
type Placement struct {
	// Placed pods hold something with a node; Aligned pods hold all of it on one node.
	Placed  int `json:"placed"`
	Aligned int `json:"aligned"`
	// The same counts for containers.
	PlacedContainers  int `json:"placedContainers"`
	AlignedContainers int `json:"alignedContainers"`
	// ByCPUs counts all containers of admitted pods.
	ByCPUs ByCPUs `json:"containersByCPUs"`
	// Spread counts the placed pods by their number of nodes, starting with one node.
	Spread    []int   `json:"spread"`
	MeanNodes float64 `json:"meanNodes"`
	// MeanDistance is the distance between the nodes of a pod, averaged over all pairs and then over
	// the placed pods (10 is local). MostDistance is the largest distance within any pod.
	MeanDistance float64 `json:"meanDistance"`
	MostDistance int     `json:"mostDistance"`
	// AlignedShare is Aligned divided by Placed; 0 if no pod was placed.
	AlignedShare float64 `json:"alignedShare"`
	// Pairs counts the pairs of devices of two resources, as a GPU and a network card, that containers
	// got and whose place in the PCI tree is known. SwitchPairs counts the pairs that share a PCIe switch.
	Pairs       int `json:"pairs,omitempty"`
	SwitchPairs int `json:"switchPairs,omitempty"`
}

// ByCPUs counts containers by the CPUs that they run on: Own, those that Pod containers share with others of
// their pod only, or those that Node containers of all pods share.
type ByCPUs struct {
	Own  int `json:"own"`
	Pod  int `json:"pod"`
	Node int `json:"node"`
}

// ResourceUse is the use of one resource, averaged over the time up to the last arrival.
type ResourceUse struct {
	Resource string `json:"resource"`
	// Used is the share that running pods request.
	Used float64 `json:"used"`
	// Fragmentation compares the largest request that one node can serve with the largest that it
	// could serve if all that is free lay together, up to the size of the largest node: 0 means that
	// both are the same. It is absent if the resource is not placed on nodes: shared CPUs, memory that
	// is only counted. Memory and huge pages of a node count as free if a pod holds a block on this
	// and other nodes, but serve no request for a single node.
	Fragmentation *float64 `json:"fragmentation,omitempty"`
	// Stranded is the share of all devices that are free on a node with too few free CPUs for the
	// smallest container that asks for such devices, or for its pod's pool. It is absent for cpu, memory and huge pages.
	Stranded *float64 `json:"stranded,omitempty"`
}

// Resizes counts what running pods asked for. Asked is the sum of AtOnce, Later, Unchanged, Infeasible,
// Replaced, Left and Waiting.
type Resizes struct {
	Asked int `json:"asked"`
	// AtOnce were done when they were asked for, Later after they were deferred: MeanDelay and MostDelay are how
	// long that took, in seconds. Grown of both asked for more of a resource, Shrunk for less.
	AtOnce    int     `json:"atOnce"`
	Later     int     `json:"later"`
	Grown     int     `json:"grown"`
	Shrunk    int     `json:"shrunk"`
	MeanDelay float64 `json:"meanDelaySeconds"`
	MostDelay float64 `json:"mostDelaySeconds"`
	// Unchanged asked for what the pod had, after it had asked for something else in vain.
	Unchanged int `json:"unchanged"`
	// Infeasible were forbidden by a rule of the node.
	Infeasible int `json:"infeasible"`
	// Deferred resizes that were never done: the pod asked for something else, it left, or the stream ended.
	Replaced int `json:"replaced"`
	Left     int `json:"left"`
	Waiting  int `json:"waiting"`
	// Reasons counts why resizes were deferred or infeasible, the most frequent first. Of is what the node
	// was short of, or the rule, as the kubelet's metrics name them.
	Reasons []Reason `json:"reasons"`
	// Spread pods had all on one NUMA node before a resize and not after it, Gathered pods the other way.
	Spread   int `json:"spread"`
	Gathered int `json:"gathered"`
	// Fragmentation compares the machine before and after resizes, on average. Resizes count that changed which
	// CPUs or memory a pod has for itself.
	Fragmentation []Shift `json:"fragmentation"`
}

// Shift is the mean of a share before and after resizes by which pods grew, or shrank.
type Shift struct {
	Resource string  `json:"resource"`
	Grown    bool    `json:"grown"`
	Resizes  int     `json:"resizes"`
	Before   float64 `json:"before"`
	After    float64 `json:"after"`
}

// ShapeCount counts pods of one kind. AdmittedShare is Admitted divided by Arrived.
type ShapeCount struct {
	Name          string  `json:"name"`
	Arrived       int     `json:"arrived"`
	Admitted      int     `json:"admitted"`
	AdmittedShare float64 `json:"admittedShare"`
	Aligned       int     `json:"aligned"`
}

// Series divides the run into equal parts of time. Each value is the average over its part.
type Series struct {
	// Step is the length of a part in seconds.
	Step  float64 `json:"stepSeconds"`
	Lines []Line  `json:"lines"`
}

// Line holds one quantity over time: "running", "waiting", "used cpu", "fragmentation cpu", ...
type Line struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
}

// Timing holds the duration of decisions in microseconds, on the machine that ran them.
type Timing struct {
	Decisions int     `json:"decisions"`
	Mean      float64 `json:"meanMicros"`
	P50       float64 `json:"p50Micros"`
	P90       float64 `json:"p90Micros"`
	P99       float64 `json:"p99Micros"`
	Max       float64 `json:"maxMicros"`
	// Wall is the duration of the whole run in seconds, including the rig's own work.
	Wall float64 `json:"wallSeconds"`
	// Histogram counts decisions by duration: entry i those below 2^i microseconds that are not in an
	// earlier entry.
	Histogram []int `json:"histogram"`
}

// Decision is one decision of the policy, for callers that follow a run.
type Decision struct {
	At time.Duration
	// Arrival is an index in Stream.Arrivals.
	Arrival int
	// Kind is Admitted, Rejected, Waits, Resized, Deferred, Infeasible or Left.
	Kind   string
	Reason Reason
	// Held lists what the pod got or gave back, by container.
	Held []Holding
}

// Holding lists what one container holds. A pod's pool has no name of a container; containers of the pod have
// parts of it, or share the rest.
type Holding struct {
	Container string `json:"container"`
	CPUs      string `json:"cpus,omitempty"`
	// MemoryNodes are the nodes of its memory, Memory maps resources to bytes.
	MemoryNodes string              `json:"memoryNodes,omitempty"`
	Memory      map[string]uint64   `json:"memory,omitempty"`
	Devices     map[string][]string `json:"devices,omitempty"`
	// Claims are the devices of its resource claims, by class.
	Claims map[string][]string `json:"claims,omitempty"`
}

// The kinds of decisions.
const (
	Admitted = "admitted"
	Rejected = "rejected"
	Waits    = "waits"
	Left     = "left"

	Resized    = "resized"
	Deferred   = "deferred"
	Infeasible = "infeasible"
)
