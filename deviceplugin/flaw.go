package deviceplugin

import (
	"strings"

	"github.com/numalet/numalet/topology"
)

// Flaw is something that is wrong with what a plugin says, for people: what was found, and what its
// author should do, if that is not the same said the other way round.
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

// inWords is all flaws in one line.
func inWords(flaws []Flaw) string {
	parts := make([]string, len(flaws))
	for i, f := range flaws {
		parts[i] = f.String()
	}
	return strings.Join(parts, "; ")
}

// FlawKind is what a flaw is about.
type FlawKind string

// What is wrong with lists of devices.
const (
	FlawID     FlawKind = "id"     // one that cannot be used
	FlawTwice  FlawKind = "twice"  // an id that comes again
	FlawHealth FlawKind = "health" // one that is none of the API's
	FlawNode   FlawKind = "node"   // one that the machine does not have
	FlawNoNode FlawKind = "nodes"  // a topology that names none
)

// What is wrong with preferences.
const (
	FlawForeign FlawKind = "foreign" // a device that was not on offer
	FlawRepeat  FlawKind = "repeat"  // a device that is named again
	FlawMust    FlawKind = "must"    // a device that is certain is left out
	FlawSize    FlawKind = "size"    // more or fewer devices than asked for
)

// ReadList reads a message of ListAndWatch as it is on the wire: the devices in natural order of
// ids, each once, and what is wrong with the message. The error is that of a message which is none.
func ReadList(message []byte, nodes topology.NodeSet) ([]*Device, []Flaw, error) {
	now, _, err := newLister(nodes).read(message)
	return now.devices, now.defects.flaws(), err
}
