package source

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology/podspec"
)

// origin says where a static pod comes from.
type origin struct {
	node   string
	source string // FileSource or HTTPSource
	// place is the path or the URL.
	place string
	gates manifest.Gates
}

// pod turns a decoded manifest into a pod as the API would store it, or refuses it.
func (o origin) pod(p *v1.Pod) error {
	if p.Name == "" {
		return manifest.Refuse(manifest.FailedValidation, "%v", field.Required(field.NewPath("metadata", "name"),
			"give the pod a name"))
	}
	made, err := o.uid(p)
	if err != nil {
		return err
	}
	given := p.UID != ""
	if !given {
		p.UID = made
	}
	p.Name += "-" + strings.ToLower(o.node)
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
	}
	p.Spec.NodeName = o.node
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	delete(p.Annotations, podspec.AnnotationMirror)
	maps.DeleteFunc(p.Annotations,
		func(name, _ string) bool { return podspec.IsAgentAnnotation(name) })
	if !given {
		p.Annotations[AnnotationManifest] = string(made)
	}
	p.Annotations[podspec.AnnotationHash] = string(p.UID)
	if o.source == FileSource {
		p.Spec.Tolerations = append(slices.Clip(p.Spec.Tolerations), v1.Toleration{
			Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	}
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	manifest.SetDefaults(p, o.gates)
	if errs := manifest.Validate(p, o.gates); len(errs) > 0 {
		return manifest.Refuse(manifest.FailedValidation, "%s", manifest.OneLine(errs))
	}
	if what := manifest.APIReference(p); what != "" {
		return manifest.Refuse(manifest.FailedValidation, "static pods may not reference %s", what)
	}
	return nil
}

// uid derives a UID from the content of a manifest, the node and the place. It uses the manifest as
// written, so that neither comments nor our defaults change it: after a restart of the agent, even
// an upgrade, it is the same.
func (o origin) uid(p *v1.Pod) (types.UID, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return "", manifest.Refuse(manifest.InvalidManifest, "encode for the UID: %v", err)
	}
	h := fnv.New128a()
	kind := "file"
	if o.source == HTTPSource {
		kind = "url"
	}
	for _, part := range []string{string(content), "host:" + o.node, kind + ":" + o.place} {
		_, _ = h.Write([]byte(part)) // never fails
	}
	return types.UID(hex.EncodeToString(h.Sum(nil))), nil
}

// problem turns an error into a report.
func (o origin) problem(name string, err error) complaint.Problem {
	p := complaint.Problem{Source: o.source, Name: name, Reason: manifest.Unreadable,
		Message: strictyaml.OneLine(err.Error())}
	if r, ok := errors.AsType[manifest.Refusal](err); ok {
		p.Reason = r.Reason
	}
	return p
}
