package devicemanager

import (
	"strings"

	"github.com/numalet/numalet/topology"
)

// Flaw describes an error in what a plugin says, for people: what was found, and what the author
// should do, unless that is obvious from Found.
type Flaw struct {
	Kind          FlawKind
	Found, Advice string
}

func (f Flaw) String() string {
	if f.Advice == "" {
		return f.Found
	}
	return f.Found + ": " + f.Advice
}

// inWords joins flaws to one line.
func inWords(flaws []Flaw) string {
	parts := make([]string, len(flaws))
	for i, f := range flaws {
		parts[i] = f.String()
	}
	return strings.Join(parts, "; ")
}

// FlawKind says what a flaw is about.
type FlawKind string

// Flaws of lists of devices.
const (
	FlawID     FlawKind = "id"     // an id that cannot be used
	FlawTwice  FlawKind = "twice"  // an id listed again
	FlawHealth FlawKind = "health" // a health that the API does not define
	FlawNode   FlawKind = "node"   // a node that the machine does not have
	FlawNoNode FlawKind = "nodes"  // a topology that names no node
)

// Flaws of preferences.
const (
	FlawForeign FlawKind = "foreign" // a device that was not on offer
	FlawRepeat  FlawKind = "repeat"  // a device named again
	FlawMust    FlawKind = "must"    // a device left out that the container is certain to get
	FlawSize    FlawKind = "size"    // more or fewer devices than asked for
)

// ReadList reads a message of ListAndWatch in its wire format. It returns the devices in natural
// order of ids, each once, and the flaws of the message; the error says that it is no such message.
func ReadList(message []byte, nodes topology.NodeSet) ([]*Device, []Flaw, error) {
	now, _, err := newLister(nodes).read(message)
	return now.devices, now.defects.flaws(), err
}
