package allocation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// podRecord is the JSON form of a pod in the state file and in sandbox annotations.
type podRecord struct {
	UID        types.UID `json:"uid"`
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	BootID     string    `json:"bootID"`
	Containers []Named   `json:"containers"`
	// Resources: older agents ignore them, and count what the pod's sandbox was made for.
	Resources *podspec.Resources `json:"resources,omitempty"`
}

// Named is a container in the state file and in its annotation. Its JSON form is an object with
// the name and a key for each kind that it holds.
type Named struct {
	Name      string
	Container Container
}

// MarshalJSON writes the pod; the same pod always gives the same text.
func (p Pod) MarshalJSON() ([]byte, error) {
	out := podRecord{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, BootID: p.BootID, Resources: p.Resources,
	}
	for name, c := range p.Containers {
		if !c.IsEmpty() {
			out.Containers = append(out.Containers, Named{name, c})
		}
	}
	slices.SortFunc(out.Containers, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Pod) UnmarshalJSON(text []byte) error {
	var in podRecord
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("pod %s: %w", in.UID, err)
	}
	*p = Pod{
		UID: in.UID, Namespace: in.Namespace, Name: in.Name, BootID: in.BootID, Resources: in.Resources,
		Containers: make(map[string]Container, len(in.Containers)),
	}
	for _, c := range in.Containers {
		p.Containers[c.Name] = c.Container
	}
	return nil
}

// MarshalJSON writes the container.
func (n Named) MarshalJSON() ([]byte, error) {
	out, err := json.Marshal(n.Name)
	if err != nil {
		return nil, err
	}
	out = append([]byte(`{"name":`), out...)
	for _, h := range n.Container {
		raw, err := h.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"`+h.Kind()+`":`...), raw...)
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads the container. It ignores kinds that it does not know.
func (n *Named) UnmarshalJSON(text []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*n = Named{}
	if raw, ok := in["name"]; ok {
		if err := json.Unmarshal(raw, &n.Name); err != nil {
			return err
		}
	}
	for _, k := range kinds {
		raw, ok := in[k.name]
		if !ok || k.decode == nil {
			continue
		}
		h, err := k.decode(raw)
		if err != nil {
			return fmt.Errorf("container %s: %s: %w", n.Name, k.name, err)
		}
		if !h.empty() {
			n.Container = append(n.Container, h)
		}
	}
	return nil
}
