package devicemanager

import (
	"fmt"
	"slices"
	"strings"

	"github.com/numalet/numalet/internal/oneline"
)

// sift returns the usable ids of a preference, in the order given, each once. The error is an
// *AnswerError that names the unusable ids and a wrong count.
func (r PreferredRequest) sift(preferred []string, resource Resource) ([]string, error) {
	usable, flaws := r.Judge(preferred, resource)
	if len(flaws) == 0 {
		return usable, nil
	}
	return usable, &AnswerError{"its preference is not followed in full: " + inWords(flaws)}
}

// Judge returns the usable ids of a preference, in the order given, each once, and a flaw for each
// kind of unusable id and for a wrong count.
func (r PreferredRequest) Judge(preferred []string, resource Resource) (
	usable []string, flaws []Flaw) {
	var twice, foreign, unhealthy, taken []string
	chosen := map[string]bool{}
	for _, id := range preferred {
		device, listed := resource.Find(id)
		switch {
		case chosen[id]:
			twice = append(twice, id)
		case r.offers(id):
			chosen[id] = true
			usable = append(usable, id)
		case !listed:
			foreign = append(foreign, id)
		case !device.Healthy:
			unhealthy = append(unhealthy, id)
		default:
			taken = append(taken, id)
		}
	}
	say := func(ids []string, kind FlawKind, what string) {
		if len(ids) > 0 {
			flaws = append(flaws, Flaw{Kind: kind, Found: what + " " + Few(ids)})
		}
	}
	say(foreign, FlawForeign, "it names devices that it does not list:")
	say(unhealthy, FlawForeign, "it names unhealthy devices:")
	say(taken, FlawForeign, "it names devices that were not on offer:")
	say(twice, FlawRepeat, "it names devices more than once:")
	say(slices.DeleteFunc(slices.Clone(r.MustInclude), func(id string) bool { return chosen[id] }),
		FlawMust, "it leaves out devices that the container is certain to get:")
	if len(usable) != r.Size {
		flaws = append(flaws, Flaw{Kind: FlawSize, Found: fmt.Sprintf("%d of its devices can be "+
			"used where %d were asked for", len(usable), r.Size)})
	}
	return usable, flaws
}

// offers reports whether the plugin was asked about the device.
func (r PreferredRequest) offers(id string) bool {
	_, found := slices.BinarySearchFunc(r.Available, id, CompareIDs)
	return found
}

// mostNamed bounds the ids that Few lists.
const mostNamed = 8

// Few lists at most mostNamed ids for people and counts the rest.
func Few(ids []string) string {
	shown := make([]string, min(len(ids), mostNamed))
	for i := range shown {
		shown[i] = oneline.Cut(ids[i], 96)
	}
	text := strings.Join(shown, ", ")
	if more := len(ids) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
