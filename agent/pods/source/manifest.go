package source

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology/podspec"
)

// maxManifest bounds a manifest in bytes.
const maxManifest = 10 << 20

// refusal says why a manifest cannot be used, and the reason for its report.
type refusal struct {
	reason  string
	message string
}

// Error implements error.
func (r refusal) Error() string { return r.message }

func refuse(reason, format string, args ...any) error {
	return refusal{reason, strictyaml.OneLine(fmt.Sprintf(format, args...))}
}

// decoded is the content of a manifest before defaults are set.
type decoded struct {
	pods []v1.Pod
	list bool
	// ignored lists the ignored fields.
	ignored strictyaml.Messages
}

// decode decodes one Pod or, if lists is set, one PodList. If strict, no field may be ignored.
func decode(data []byte, lists, strict bool) (decoded, error) {
	d, err := decodeLenient(data, lists)
	if err == nil && strict && len(d.ignored.First) > 0 {
		err = refuse(InvalidManifest, "--refuse-unknown-fields: %s", d.ignored)
	}
	return d, err
}

func decodeLenient(data []byte, lists bool) (decoded, error) {
	doc, err := strictyaml.Parse(data)
	if err != nil {
		return decoded{}, refuse(InvalidManifest, "the manifest %v", err)
	}
	var d decoded
	if doc.Duplicates != "" {
		d.ignored.First = []string{"given twice, the last one is used: " + doc.Duplicates}
	}
	apiVersion, kind := doc.Kind()
	switch {
	case apiVersion == "v1" && kind == "Pod":
		d.pods = make([]v1.Pod, 1)
		err = decodeInto(doc, &d.pods[0], &d)
	case apiVersion == "v1" && kind == "PodList" && lists:
		if items, _ := doc.Root()["items"].([]any); len(items) > maxPods {
			return d, refuse(InvalidManifest, "items: lists %d pods; at most %d are taken",
				len(items), maxPods)
		}
		var list v1.PodList
		err = decodeInto(doc, &list, &d)
		d.pods, d.list = list.Items, true
	case apiVersion == "v1" && kind == "PodList":
		err = refuse(InvalidManifest, "kind: a file holds one Pod, found a PodList; "+
			"put each pod in a file of its own")
	default:
		err = refuse(InvalidManifest, "want apiVersion \"v1\" and kind \"Pod\", "+
			"found apiVersion %q and kind %q", apiVersion, kind)
	}
	return d, err
}

func decodeInto[T any](doc strictyaml.Document, into *T, d *decoded) error {
	findings := strictyaml.Check[T](doc)
	if len(findings.Wrong.First) > 0 {
		return refuse(InvalidManifest, "%s", findings.Wrong)
	}
	d.ignored.First = append(d.ignored.First, findings.Unknown.First...)
	d.ignored.More = findings.Unknown.More
	if err := doc.Decode(into); err != nil {
		return refuse(InvalidManifest, "%v", err)
	}
	return nil
}

// origin says where a static pod comes from.
type origin struct {
	node   string
	source string // FileSource or HTTPSource
	// place is the path or the URL.
	place string
	gates Gates
}

// pod turns a decoded manifest into a pod as the API would store it, or refuses it.
func (o origin) pod(p *v1.Pod) error {
	if p.Name == "" {
		return refuse(FailedValidation, "%v", field.Required(field.NewPath("metadata", "name"),
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
	delete(p.Annotations, AnnotationMirror)
	maps.DeleteFunc(p.Annotations,
		func(name, _ string) bool { return podspec.IsAgentAnnotation(name) })
	if !given {
		p.Annotations[AnnotationManifest] = string(made)
	}
	p.Annotations[AnnotationHash] = string(p.UID)
	if o.source == FileSource {
		p.Spec.Tolerations = append(slices.Clip(p.Spec.Tolerations), v1.Toleration{
			Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	}
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	setDefaults(p, o.gates)
	if errs := validatePod(p, o.gates); len(errs) > 0 {
		return refuse(FailedValidation, "%s", oneLine(errs))
	}
	if what := apiReference(p); what != "" {
		return refuse(FailedValidation, "static pods may not reference %s", what)
	}
	return nil
}

// uid derives a UID from the content of a manifest, the node and the place. It uses the manifest as
// written, so that neither comments nor our defaults change it: after a restart of the agent, even
// an upgrade, it is the same.
func (o origin) uid(p *v1.Pod) (types.UID, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return "", refuse(InvalidManifest, "encode for the UID: %v", err)
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

func oneLine(errs field.ErrorList) string {
	all := strictyaml.Messages{More: max(len(errs)-strictyaml.MaxMessages, 0)}
	for _, err := range errs[:len(errs)-all.More] {
		all.First = append(all.First, strictyaml.OneLine(err.Error()))
	}
	return all.String()
}

// problem turns an error into a report.
func (o origin) problem(name string, err error) Problem {
	p := Problem{Source: o.source, Name: name, Reason: Unreadable,
		Message: strictyaml.OneLine(err.Error())}
	if r, ok := errors.AsType[refusal](err); ok {
		p.Reason = r.reason
	}
	return p
}
