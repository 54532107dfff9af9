// Package explain says why a pod was admitted, waits or was rejected: what it asked for, what was
// free, what each resource could offer, what came of it and what would have fitted. It is pure.
package explain

import (
	"time"

	"github.com/numalet/numalet/topology/flatjson"
)

// ReasonHeld is the reason of a pod that is not rejected yet, since others of its controller were.
const ReasonHeld = "WaitingAfterRejections"

// Record is the explanation of one decision. As JSON it is flat.
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
	// DryRun: nothing was decided on it; the outcome is what it would be.
	DryRun bool `json:"dryRun,omitempty"`
}

// Attempt is how a place for the pod was looked for.
type Attempt struct {
	Requests []Request `json:"requests"`
	// Free is what was there for the pod, of each resource that is assigned and that it asks for.
	Free   []Supply `json:"free,omitempty"`
	Merges []Merge  `json:"merges,omitempty"`
	// Blocking is what stood in the way first; nil: nothing that is known here.
	Blocking *Blocking `json:"blocking,omitempty"`
	// WouldFit lists changes after any one of which the pod would have been placed.
	WouldFit []string `json:"wouldFit,omitempty"`
}

// Rules are those that the pod is placed by.
type Rules struct {
	// Policy and Scope are the topology manager's.
	Policy string `json:"policy"`
	Scope  string `json:"scope"`
	// Strategy is the NUMA allocation strategy, unless it is the kubelet's.
	Strategy string `json:"numaAllocation,omitempty"`
	// Chosen are the pod's annotations that these come from.
	Chosen []string `json:"chosenBy,omitempty"`
}

// Remarks are what else is to be said of how the place was chosen.
type Remarks struct {
	// Ignored are preferences of device plugins that were not followed, and why.
	Ignored []string `json:"ignored,omitempty"`
	// Since says what has gone wrong with an admitted pod since.
	Since []string `json:"since,omitempty"`
	// Logs are those of containers that have ended and are to start again.
	Logs []Log `json:"logs,omitempty"`
	// Plugins says what is wrong now with the device plugins of what the pod asks for.
	Plugins []string `json:"plugins,omitempty"`
	// Ahead: it was placed by looking ahead, as in the order of their starts its containers had no
	// place.
	Ahead bool `json:"ahead,omitempty"`
	// Kept says how much stays of what the pod had before, if not all.
	Kept []string `json:"kept,omitempty"`
}

// Log is the file with what a container said before it ended.
type Log struct {
	Container string `json:"container"`
	Path      string `json:"path"`
}

// Verdict is the outcome in admission's words.
type Verdict struct {
	// At is when the outcome was said.
	At time.Time `json:"at"`
	// Outcome is Admit, Wait or Reject.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Request is what one container asks for that is assigned.
type Request struct {
	Container string `json:"container"`
	// Kind is init, sidecar or regular.
	Kind      string   `json:"kind"`
	Resources []Amount `json:"resources,omitempty"`
}

// Amount is a number of exclusive CPUs (resource "cpu", or that of isolated ones), of devices, or of
// bytes of memory or huge pages. Got names those it got.
type Amount struct {
	Resource string `json:"resource"`
	Count    int    `json:"count"`
	Got      string `json:"got,omitempty"`
	// PaddedTo is the number of CPUs with those that lie idle beside them, so that the cores are
	// whole.
	PaddedTo int `json:"paddedTo,omitempty"`
}

// Supply is what there is of one resource: CPUs that may be exclusive, healthy devices that are not
// cordoned, bytes of
// memory that containers may have.
type Supply struct {
	Resource  string `json:"resource"`
	Free      int    `json:"free"`
	Total     int    `json:"total"`
	Unhealthy int    `json:"unhealthy,omitempty"`
	// Cordoned counts the healthy devices that new containers are not given.
	Cordoned int `json:"cordoned,omitempty"`
	// Nodes has the machine's nodes in order. A device of several nodes counts on each of them.
	Nodes []NodeSupply `json:"nodes"`
	// Nowhere counts devices without a node.
	Nowhere *NodeSupply `json:"nowhere,omitempty"`
	// Groups are sets of nodes whose memory other pods use together.
	Groups []string `json:"groups,omitempty"`
	// Single lists the nodes of which other pods use the memory alone.
	Single string `json:"single,omitempty"`
	// Away: the device plugin is not connected.
	Away bool `json:"away,omitempty"`
}

// NodeSupply is a supply on one NUMA node.
type NodeSupply struct {
	Node  int `json:"node"`
	Free  int `json:"free"`
	Total int `json:"total"`
}

// Merge is one merge of what the resources of a container, or of the pod, could offer.
type Merge struct {
	// Container is its name, "" for the pod as a whole.
	Container string  `json:"container"`
	Offers    []Offer `json:"offers"`
	// Merged is the placement that came out, in words.
	Merged   string `json:"merged"`
	Admitted bool   `json:"admitted"`
}

// Offer is where one resource could be had. Node sets are in list syntax, narrow ones first; there
// may be more than are listed.
type Offer struct {
	Resource string `json:"resource"`
	// Any: it does not matter where.
	Any bool `json:"any,omitempty"`
	// Preferred sets are as narrow as they would be on this machine when empty; Possible ones are
	// wider.
	Preferred []string `json:"preferred,omitempty"`
	Possible  []string `json:"possible,omitempty"`
	// Placements counts them all.
	Placements int `json:"placements"`
}

// Blocking is the first resource that could not be had.
type Blocking struct {
	Resource string `json:"resource"`
	// Container is its name, "" for the pod as a whole.
	Container string `json:"container,omitempty"`
	Why       string `json:"why"`
	// Apart: there is enough of it, but not where the resources before it are.
	Apart bool `json:"apart,omitempty"`
}
