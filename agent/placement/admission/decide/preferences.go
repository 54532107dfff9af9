package decide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// Preferences hold what plugins prefer for one pod.
type Preferences struct {
	Advice allocation.Advice
	// Silent names the resources whose plugins failed to answer: they are not asked again.
	Silent sets.Set[string]
	// Ignored says whose preferences are not followed, and why.
	Ignored []string
}

// Answered adds a plugin's answer. A plugin that did not answer is not asked again.
func (p Preferences) Answered(key allocation.AskKey, advice []string, err error) Preferences {
	p = p.With(key, advice)
	if err != nil {
		p.Ignored = append(slices.Clip(p.Ignored), fmt.Sprintf("%s of container %s: %v",
			key.Resource, key.Container, err))
	}
	if MayPass(err) {
		p = p.Without(key.Resource)
	}
	return p
}

// With adds the ids that a plugin prefers; nil: it named none.
func (p Preferences) With(key allocation.AskKey, advice []string) Preferences {
	p.Advice = maps.Clone(p.Advice)
	if p.Advice == nil {
		p.Advice = allocation.Advice{}
	}
	p.Advice[key] = advice
	return p
}

// Without has the plugin of the resource not be asked.
func (p Preferences) Without(resource string) Preferences {
	p.Silent = p.Silent.Union(sets.New(resource))
	return p
}

// MayPass reports whether an error of a plugin's call says that the plugin is away or too slow. Any
// other error is its answer.
func MayPass(err error) bool {
	if _, stopped := errors.AsType[*devicemanager.StoppedError](err); stopped ||
		errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled:
		return true
	}
	return false
}
