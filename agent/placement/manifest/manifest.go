// Package manifest reads pods as people write them: it decodes them, sets the defaults of an API server, and
// says which rule a pod breaks. Decoding is lenient and the checks are strict; all input is bounded, and the
// bounds are checked before further work.
package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/numalet/numalet/internal/strictyaml"
)

// The reasons why a manifest, or the place where it should be, is reported.
const (
	// FailedValidation: the pod breaks a rule of the API, or another pod has its name.
	FailedValidation = "FailedValidation"
	// Unreadable: file, directory or URL cannot be read.
	Unreadable = "Unreadable"
	// Absent: there is nothing at the path of the manifests.
	Absent = "Absent"
	// InvalidManifest: the content is not a Pod.
	InvalidManifest = "InvalidManifest"
	// IgnoredField: a warning; the pod is used without these fields.
	IgnoredField = "IgnoredField"
)

// MaxBytes bounds a manifest in bytes.
const MaxBytes = 10 << 20

// Refusal says why a manifest cannot be used, and the reason for its report.
type Refusal struct {
	Reason  string
	message string
}

// Error implements error.
func (r Refusal) Error() string { return r.message }

// Refuse returns a Refusal with one of the reasons above.
func Refuse(reason, format string, args ...any) error {
	return Refusal{reason, strictyaml.OneLine(fmt.Sprintf(format, args...))}
}

// Decoded is the content of a manifest before defaults are set.
type Decoded struct {
	Pods []v1.Pod
	List bool // it is a list
	// Ignored lists the ignored fields.
	Ignored strictyaml.Messages
}

// Decode decodes one Pod or, if lists is set, one PodList. If strict, no field may be ignored.
func Decode(data []byte, lists, strict bool) (Decoded, error) {
	d, err := decodeLenient(data, lists)
	if err == nil && strict && len(d.Ignored.First) > 0 {
		err = Refuse(InvalidManifest, "--refuse-unknown-fields: %s", d.Ignored)
	}
	return d, err
}

func decodeLenient(data []byte, lists bool) (Decoded, error) {
	doc, err := strictyaml.Parse(data)
	if err != nil {
		return Decoded{}, Refuse(InvalidManifest, "the manifest %v", err)
	}
	var d Decoded
	if doc.Duplicates != "" {
		d.Ignored.First = []string{"given twice, the last one is used: " + doc.Duplicates}
	}
	apiVersion, kind := doc.Kind()
	switch {
	case apiVersion == "v1" && kind == "Pod":
		d.Pods = make([]v1.Pod, 1)
		err = decodeInto(doc, &d.Pods[0], &d)
	case apiVersion == "v1" && kind == "PodList" && lists:
		if items, _ := doc.Root()["items"].([]any); len(items) > MaxPods {
			return d, Refuse(InvalidManifest, "items: lists %d pods; at most %d are taken",
				len(items), MaxPods)
		}
		var list v1.PodList
		err = decodeInto(doc, &list, &d)
		d.Pods, d.List = list.Items, true
	case apiVersion == "v1" && kind == "PodList":
		err = Refuse(InvalidManifest, "kind: a file holds one Pod, found a PodList; "+
			"put each pod in a file of its own")
	default:
		err = Refuse(InvalidManifest, "want apiVersion \"v1\" and kind \"Pod\", "+
			"found apiVersion %q and kind %q", apiVersion, kind)
	}
	return d, err
}

func decodeInto[T any](doc strictyaml.Document, into *T, d *Decoded) error {
	findings := strictyaml.Check[T](doc)
	if len(findings.Wrong.First) > 0 {
		return Refuse(InvalidManifest, "%s", findings.Wrong)
	}
	d.Ignored.First = append(d.Ignored.First, findings.Unknown.First...)
	d.Ignored.More = findings.Unknown.More
	if err := doc.Decode(into); err != nil {
		return Refuse(InvalidManifest, "%v", err)
	}
	return nil
}

// OneLine joins violations, the first of them if there are many.
func OneLine(errs field.ErrorList) string {
	all := strictyaml.Messages{More: max(len(errs)-strictyaml.MaxMessages, 0)}
	for _, err := range errs[:len(errs)-all.More] {
		all.First = append(all.First, strictyaml.OneLine(err.Error()))
	}
	return all.String()
}
