package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/strictyaml"
)

// Manifest is the result of Read.
type Manifest struct {
	Pods []*v1.Pod
	// Claims and Slices say what the pods' resource claims have, and where that is.
	Claims []*resourcev1.ResourceClaim
	Slices []*resourcev1.ResourceSlice
	// Templates hold the ResourceClaimTemplates, from which claims are made for each pod.
	Templates []*resourcev1.ResourceClaimTemplate
	// Warnings lists ignored fields, objects that were skipped, and what a node without an API server would refuse.
	Warnings []string

	skipped error // why the first object was skipped; nil: none was
	strict  bool
	gates   Gates
}

// Read reads pods for a query; they will not run. It accepts any number of YAML or JSON documents,
// each a Pod, a List or PodList, or a workload, whose pod template counts once, and ResourceClaims, their templates and
// ResourceSlices beside them. Objects of other kinds, such as Services, are skipped with a warning. Pods are checked and get defaults as those of manifest files do, but keep
// their names, and the claims that their status names. If strict, unknown fields of pods are refused
// instead of ignored. gates are the node's.
func Read(data []byte, strict bool, gates Gates) (Manifest, error) {
	m := Manifest{strict: strict, gates: gates}
	docs, err := strictyaml.Split(data)
	if err != nil {
		return m, Refuse(InvalidManifest, "the manifest %v", err)
	}
	for i, raw := range docs {
		at := ""
		if len(docs) > 1 {
			at = fmt.Sprintf("document %d: ", i+1)
		}
		if err := m.read(raw, at); err != nil {
			return Manifest{}, err
		}
	}
	if len(m.Pods) == 0 && m.skipped != nil {
		return Manifest{}, m.skipped
	}
	if len(m.Pods) == 0 {
		return m, Refuse(InvalidManifest, "the manifest lists no pods")
	}
	return m, nil
}

func (m *Manifest) read(raw []byte, at string) error {
	doc, err := strictyaml.Parse(raw)
	if err != nil {
		return Refuse(InvalidManifest, "%sthe manifest %v", at, err)
	}
	if doc.Duplicates != "" && m.strict {
		return Refuse(InvalidManifest, "%s--refuse-unknown-fields: given twice: %s", at,
			doc.Duplicates)
	}
	if doc.Duplicates != "" {
		m.warn(at, "ignored field: given twice, the last one is used: "+doc.Duplicates)
	}
	apiVersion, kind := doc.Kind()
	if apiVersion == "v1" && (kind == "List" || kind == "PodList") {
		return m.list(doc.Root()["items"], at)
	}
	return m.object(doc, at)
}

// object reads a Pod or a workload.
func (m *Manifest) object(doc strictyaml.Document, at string) error {
	apiVersion, kind := doc.Kind()
	if apiVersion == "v1" && kind == "Pod" {
		return m.pod(doc.JSON, at)
	}
	switch {
	case apiVersion != resourcev1.SchemeGroupVersion.String():
	case kind == "ResourceClaim":
		return also(&m.Claims, doc.JSON, kind, at)
	case kind == "ResourceClaimTemplate":
		return also(&m.Templates, doc.JSON, kind, at)
	case kind == "ResourceSlice":
		return also(&m.Slices, doc.JSON, kind, at)
	}
	path, ok := templates[apiVersion+" "+kind]
	if !ok {
		return m.skip(doc, at)
	}
	root := doc.Root()
	template := dig(root, path)
	if template == nil {
		return Refuse(InvalidManifest, "%sthe %s has no %s", at, kind, strings.Join(path, "."))
	}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
	meta, _ := template["metadata"].(map[string]any)
	meta = mapsWith(meta, "name", dig(root, []string{"metadata"})["name"])
	pod["metadata"] = mapsWith(meta, "namespace", dig(root, []string{"metadata"})["namespace"])
	raw, err := json.Marshal(pod)
	if err != nil {
		return Refuse(InvalidManifest, "%sread the pod template: %v", at, err)
	}
	return m.pod(raw, at+strings.Join(path, ".")+": ")
}

// skip leaves out an object that is not a pod and has none, and warns of that. What is no object at all is refused.
func (m *Manifest) skip(doc strictyaml.Document, at string) error {
	apiVersion, kind := doc.Kind()
	refusal := Refuse(InvalidManifest, "%swant Pods, a List of them or a workload with a pod "+
		"template (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob), found "+
		"apiVersion %q and kind %q", at, apiVersion, kind)
	if apiVersion == "" || kind == "" {
		return refusal
	}
	if m.skipped == nil {
		m.skipped = refusal
	}
	name, _ := dig(doc.Root(), []string{"metadata"})["name"].(string)
	text := fmt.Sprintf("%s %s of %s is skipped: it has no pods", kind, oneline.Cut(name, maxName), apiVersion)
	if strings.HasPrefix(apiVersion, resourcev1.GroupName+"/") {
		text = fmt.Sprintf("%s %s is skipped: it is of %s, and only %s is read", kind, oneline.Cut(name, maxName),
			apiVersion, resourcev1.SchemeGroupVersion)
	}
	m.warn(at, text)
	return nil
}

// maxName bounds how much of an object's name is shown.
const maxName = 64

// also reads an object that pods refer to.
func also[T any](to *[]*T, raw []byte, kind, at string) error {
	one := new(T)
	if err := json.Unmarshal(raw, one); err != nil {
		return Refuse(InvalidManifest, "%sread the %s: %v", at, kind, err)
	}
	*to = append(*to, one)
	return nil
}

// templates holds the paths of pod templates in workloads.
var templates = map[string][]string{
	"v1 PodTemplate":           {"template"},
	"v1 ReplicationController": {"spec", "template"},
	"apps/v1 Deployment":       {"spec", "template"},
	"apps/v1 ReplicaSet":       {"spec", "template"},
	"apps/v1 StatefulSet":      {"spec", "template"},
	"apps/v1 DaemonSet":        {"spec", "template"},
	"batch/v1 Job":             {"spec", "template"},
	"batch/v1 CronJob":         {"spec", "jobTemplate", "spec", "template"},
}

// dig follows a path of objects; nil if it does not exist.
func dig(at map[string]any, path []string) map[string]any {
	for _, key := range path {
		at, _ = at[key].(map[string]any)
	}
	return at
}

// mapsWith returns the object with one more field, unless value is nil.
func mapsWith(m map[string]any, key string, value any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, m)
	if value != nil {
		out[key] = value
	}
	return out
}

func (m *Manifest) list(items any, at string) error {
	all, ok := items.([]any)
	if !ok {
		return Refuse(InvalidManifest, "%sitems: want a list of objects", at)
	}
	for i, item := range all {
		if object, ok := item.(map[string]any); ok && object["kind"] == nil {
			// items of a PodList have no kind
			item = mapsWith(mapsWith(object, "kind", "Pod"), "apiVersion", "v1")
		}
		at := fmt.Sprintf("%sitems[%d]: ", at, i)
		raw, err := json.Marshal(item)
		if err != nil {
			return Refuse(InvalidManifest, "%s%v", at, err)
		}
		doc, err := strictyaml.Parse(raw)
		if err != nil {
			return Refuse(InvalidManifest, "%sthe item %v", at, err)
		}
		if err := m.object(doc, at); err != nil {
			return err
		}
	}
	return nil
}

// pod reads one pod and gives it an identity.
func (m *Manifest) pod(raw []byte, at string) error {
	d, err := Decode(raw, false, m.strict)
	if err != nil {
		return Refuse(InvalidManifest, "%s%v", at, err)
	}
	if len(d.Ignored.First) > 0 {
		m.warn(at, "ignored field: "+d.Ignored.String())
	}
	p := &d.Pods[0]
	if p.Name == "" {
		p.Name = strings.TrimSuffix(p.GenerateName, "-")
	}
	if p.Name == "" {
		return Refuse(FailedValidation, "%s%v", at,
			field.Required(field.NewPath("metadata", "name"), "give the pod a name"))
	}
	if p.Namespace == "" {
		p.Namespace = v1.NamespaceDefault
	}
	p.UID = types.UID(fmt.Sprintf("asked-%d", len(m.Pods)))
	p.Status = v1.PodStatus{Phase: v1.PodPending, ResourceClaimStatuses: p.Status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: p.Status.ExtendedResourceClaimStatus}
	SetDefaults(p, m.gates)
	if errs := Validate(p, m.gates); len(errs) > 0 {
		return Refuse(FailedValidation, "%s%s", at, OneLine(errs))
	}
	if what := APIReference(p); what != "" {
		m.warn(at, "a node without an API server refuses this pod: it refers to "+what)
	}
	m.Pods = append(m.Pods, p)
	return nil
}

func (m *Manifest) warn(at, text string) {
	if text = at + text; !slices.Contains(m.Warnings, text) {
		m.Warnings = append(m.Warnings, text)
	}
}
