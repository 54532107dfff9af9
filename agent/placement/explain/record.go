// Package explain says why a pod was admitted, waits or was rejected: what it asked for, what was
// free, what each resource could offer, what the result was, and what would have fitted. It is
// pure.
package explain

import (
	"time"

	"github.com/numalet/numalet/internal/flatjson"
)

// ReasonHeld is the reason of a pod whose rejection is delayed because others of its controller
// were rejected.
const ReasonHeld = "WaitingAfterRejections"

// Record is the explanation of one decision. Its JSON is flat.
type Record struct {
	Verdict
	Subject Subject
	Rules   Rules
	Attempt
	Remarks Remarks
}

// MarshalJSON writes the record as one object.
func (r Record) MarshalJSON() ([]byte, error) {
	return flatjson.Marshal(r.Verdict, r.Subject, r.Rules, r.Attempt, r.Remarks)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Record) UnmarshalJSON(text []byte) error {
	return flatjson.Unmarshal(text, &r.Verdict, &r.Subject, &r.Rules, &r.Attempt, &r.Remarks)
}

// Subject is the pod of a decision.
type Subject struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Source is where the pod comes from, "api", "file" or "http"; "": it is not known.
	Source string `json:"source,omitempty"`
	// DryRun is set if there was no decision; the outcome says what it would be.
	DryRun bool `json:"dryRun,omitempty"`
}

// Attempt describes the search for a place.
type Attempt struct {
	Requests []Request `json:"requests"`
	// Free tells what was free of each assigned resource that the pod asks for.
	Free   []Supply `json:"free,omitempty"`
	Merges []Merge  `json:"merges,omitempty"`
	// Blocking says what blocked the pod first; nil: nothing known.
	Blocking *Blocking `json:"blocking,omitempty"`
	// WouldFit lists changes that would each have given the pod a place.
	WouldFit []string `json:"wouldFit,omitempty"`
}

// Rules are the rules of the pod's placement.
type Rules struct {
	// Policy and Scope are the topology manager's.
	Policy string `json:"policy"`
	Scope  string `json:"scope"`
	// Strategy is the NUMA allocation strategy, unless it is the kubelet's.
	Strategy string `json:"numaAllocation,omitempty"`
	// Chosen lists the pod's annotations that these rules come from.
	Chosen []string `json:"chosenBy,omitempty"`
}

// Remarks are further notes on the placement.
type Remarks struct {
	// Ignored lists preferences of device plugins that were not followed, and why.
	Ignored []string `json:"ignored,omitempty"`
	// Since lists problems of an admitted pod since its admission.
	Since []string `json:"since,omitempty"`
	// Logs lists the logs of containers that have ended and will be restarted.
	Logs []Log `json:"logs,omitempty"`
	// Plugins lists present problems of the device plugins that the pod needs.
	Plugins []string `json:"plugins,omitempty"`
	// Ahead is set if the containers had no place in the order of their starts, and a place was found
	// by looking ahead.
	Ahead bool `json:"ahead,omitempty"`
	// Kept says how much the pod keeps of its earlier placement, if not all.
	Kept []string `json:"kept,omitempty"`
}

// Log is the log file of a container that has ended.
type Log struct {
	Container string `json:"container"`
	Path      string `json:"path"`
}

// Verdict is the outcome in admission's words.
type Verdict struct {
	// At is the time of the outcome.
	At time.Time `json:"at,omitzero"`
	// Outcome is Admit, Wait or Reject.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Request holds what one container, or the pod as a whole, asks for of assigned resources.
type Request struct {
	Container string `json:"container"`
	// Kind is init, sidecar or regular; pod, without a container, for what the pod asks for as a whole.
	Kind string `json:"kind"`
	// Shares says which CPUs it shares with others of its pod; "": none.
	Shares    string   `json:"shares,omitempty"`
	Resources []Amount `json:"resources,omitempty"`
	// Claims are its resource claims, with the devices that are allocated.
	Claims []string `json:"claims,omitempty"`
}

// Amount is a number of exclusive CPUs (resource "cpu", or the name of isolated ones), of devices,
// or of bytes of memory or huge pages. Got names what the container got.
type Amount struct {
	Resource string `json:"resource"`
	Count    int    `json:"count"`
	Got      string `json:"got,omitempty"`
	// PaddedTo is the number of CPUs including those left idle to complete the cores.
	PaddedTo int `json:"paddedTo,omitempty"`
	// Foreign says what becomes of a resource that no device plugin has ever had: counted, if the node's
	// status has it, else left aside.
	Foreign string `json:"foreign,omitempty"`
}

// Supply holds the amounts of one resource: CPUs that may be exclusive, healthy devices that are
// not cordoned, bytes of assignable memory.
type Supply struct {
	Resource  string `json:"resource"`
	Free      int    `json:"free"`
	Total     int    `json:"total"`
	Unhealthy int    `json:"unhealthy,omitempty"`
	// Cordoned counts healthy devices that new containers do not get.
	Cordoned int `json:"cordoned,omitempty"`
	// Claimed counts devices of Total that are not free since resource claims have the same hardware.
	Claimed int `json:"claimed,omitempty"`
	// Nodes holds the machine's nodes in order. A device with several nodes counts on each of them.
	Nodes []NodeSupply `json:"nodes"`
	// Nowhere counts devices without a node.
	Nowhere *NodeSupply `json:"nowhere,omitempty"`
	// Groups lists sets of nodes whose memory other pods use together.
	Groups []string `json:"groups,omitempty"`
	// Single lists nodes whose memory other pods use without other nodes'.
	Single string `json:"single,omitempty"`
	// Away is set if the device plugin is not connected.
	Away bool `json:"away,omitempty"`
}

// NodeSupply is a supply on one NUMA node.
type NodeSupply struct {
	Node  int `json:"node"`
	Free  int `json:"free"`
	Total int `json:"total"`
}

// Merge is one merge of the resources of a container or of the pod.
type Merge struct {
	// Container is the container's name, "" for the pod as a whole.
	Container string  `json:"container"`
	Offers    []Offer `json:"offers"`
	// Merged is the resulting placement in words.
	Merged   string `json:"merged"`
	Admitted bool   `json:"admitted"`
}

// Offer says where one resource can be placed. Node sets are in list syntax, narrow ones first; not
// all may be listed.
type Offer struct {
	Resource string `json:"resource"`
	// Any is set if all places are equal.
	Any bool `json:"any,omitempty"`
	// Preferred sets are as narrow as on the empty machine; Possible ones are wider.
	Preferred []string `json:"preferred,omitempty"`
	Possible  []string `json:"possible,omitempty"`
	// Placements is the number of all sets.
	Placements int `json:"placements"`
}

// Blocking is the first resource that was not available.
type Blocking struct {
	Resource string `json:"resource"`
	// Container is the container's name, "" for the pod as a whole.
	Container string `json:"container,omitempty"`
	Why       string `json:"why"`
	// Apart is set if there is enough of the resource, but not where the resources before it are.
	Apart bool `json:"apart,omitempty"`
}
