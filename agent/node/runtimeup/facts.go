package runtimeup

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/numalet/numalet/agent/node/nodestatus"
)

// Facts returns what the node's status says of the runtime besides its version.
func (s State) Facts() nodestatus.Runtime {
	out := nodestatus.Runtime{
		Images: s.Images, Handlers: make([]v1.NodeRuntimeHandler, 0, len(s.Handlers)),
		SupplementalGroupsPolicy: s.SupplementalGroupsPolicy,
	}
	for _, h := range s.Handlers {
		out.Handlers = append(out.Handlers, v1.NodeRuntimeHandler{Name: h.Name,
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts,
				UserNamespaces:          &h.UserNamespaces,
			}})
	}
	slices.SortFunc(out.Handlers, func(a, b v1.NodeRuntimeHandler) int {
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// NodeVersion returns the runtime's name and version as the node's status has them.
func (s State) NodeVersion() string { return s.Name + "://" + plainVersion(s.Version) }

// plainVersion removes the v that some versions begin with. Other texts stay as they are.
func plainVersion(text string) string {
	plain := strings.TrimPrefix(text, "v")
	if _, err := utilversion.ParseGeneric(plain); err != nil {
		return text
	}
	return plain
}
