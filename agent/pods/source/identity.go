package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology/podspec"
)

// IdentitiesFile is the name of the file, in the agent's root, that remembers which UIDs pods have
// from another agent.
const IdentitiesFile = "numalet_identities"

// maxIdentitiesFile bounds what is read: some hundred bytes for a pod.
const maxIdentitiesFile = 4 << 20

// saveAgain is how long after a write that failed the next one is tried.
const saveAgain = 10 * time.Second

// Identities gives static pods that came without metadata.uid the UID that another agent gave them,
// so that a node is handed over, in both directions, without a restart. Until then such a pod's UID
// is the one made of its manifest (AnnotationManifest).
//
// A pod that runs here when the agent starts, under its namespace and name, and that was started
// from the same definition (cri.StartedFrom), lends its UID to the first manifest of that name. It
// is remembered together with what the manifest was: the pod keeps that UID when its sandbox is
// gone, and a manifest that was changed is another pod, also if it was changed while no agent ran.
//
// An Identities belongs to one goroutine.
type Identities struct {
	path    string
	running func() []cri.Pod
	report  func(complaint.Problem)
	lost    func(error)

	saved *files.Record[[]identity]          // nil until the first pods come
	found map[types.NamespacedName][]cri.Pod // at the start, until a manifest has asked
	known map[types.NamespacedName]identity
	asked map[types.NamespacedName]bool // of those known
}

// identity is the UID that the pod of a manifest has from another agent.
type identity struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Manifest is the UID that we make of the manifest.
	Manifest types.UID `json:"manifest"`
	UID      types.UID `json:"uid"`
}

// NewIdentities remembers in the file path. running returns what the runtime has; it is asked once,
// when the first pod is. report receives what is wrong with the file, and lost what was when it was
// moved aside (files.ErrUnusable); neither may block.
func NewIdentities(path string, running func() []cri.Pod, report func(complaint.Problem), lost func(error)) *Identities {
	return &Identities{path: path, running: running, report: report, lost: lost,
		known: map[types.NamespacedName]identity{}, asked: map[types.NamespacedName]bool{}}
}

// Of returns the pods with the UIDs that they are to have. Pods that get another UID are copies.
func (i *Identities) Of(pods []*v1.Pod) []*v1.Pod {
	i.begin()
	out := slices.Clone(pods)
	for n, p := range out {
		name := podspec.Name(p)
		made := types.UID(p.Annotations[AnnotationManifest])
		if made == "" { // its manifest says who it is
			delete(i.found, name)
			continue
		}
		uid := i.choose(name, made, p)
		if uid != p.UID {
			p = p.DeepCopy()
			p.UID, p.Annotations[podspec.AnnotationHash] = uid, string(uid)
			out[n] = p
		}
	}
	i.save()
	return out
}

// retry is when to call save again: never while the file is up to date.
func (i *Identities) retry() <-chan time.Time {
	if i == nil || i.saved == nil || slices.Equal(i.list(), i.saved.Get()) {
		return nil
	}
	return time.After(saveAgain)
}

// choose is the UID for a pod.
func (i *Identities) choose(name types.NamespacedName, made types.UID, p *v1.Pod) types.UID {
	was, remembered := i.known[name]
	uid := made
	lent, runs := i.lent(name, made, p)
	switch valid := remembered && was.Manifest == made; {
	case valid && !runs:
		uid = was.UID
	case lent != "":
		uid = lent
	}
	if uid == made {
		delete(i.known, name)
		delete(i.asked, name)
		return uid
	}
	i.known[name] = identity{Namespace: name.Namespace, Name: name.Name, Manifest: made, UID: uid}
	i.asked[name] = true
	return uid
}

// lent is the UID of the pod that was found of that name and definition, "" for none; the newest
// one if there are several, and one that runs before others. It is asked once of each name: what
// is found later was started by us.
func (i *Identities) lent(name types.NamespacedName, made types.UID, p *v1.Pod) (
	uid types.UID, runs bool) {
	found := i.found[name]
	delete(i.found, name)
	was, remembered := i.known[name]
	found = slices.DeleteFunc(found, func(o cri.Pod) bool {
		says := o.Sandboxes[0].Annotations
		if says[podspec.AnnotationSource] == podspec.APISource { // its other annotations may be a user's
			return true
		}
		if ours := says[AnnotationManifest]; ours != "" || says[cri.AnnotationRoot] != "" {
			return ours != string(made) // none: it is ours, and its manifest said who it is
		}
		outdated := remembered && was.UID == o.UID && was.Manifest != made
		return outdated || !manifest.SafeUID.MatchString(string(o.UID)) || !cri.StartedFrom(p, o)
	})
	if len(found) == 0 {
		return "", false
	}
	stopped := func(o cri.Pod) bool { return !o.Running() }
	if runs = slices.ContainsFunc(found, cri.Pod.Running); runs {
		found = slices.DeleteFunc(found, stopped)
	}
	return slices.MaxFunc(found, func(a, b cri.Pod) int {
		return a.Sandboxes[0].CreatedAt.Compare(b.Sandboxes[0].CreatedAt)
	}).UID, runs
}

// begin reads what is remembered and what the runtime has, once.
func (i *Identities) begin() {
	if i.saved != nil {
		return
	}
	i.found = map[types.NamespacedName][]cri.Pod{}
	for _, p := range i.running() {
		if len(p.Sandboxes) > 0 {
			name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
			i.found[name] = append(i.found[name], p)
		}
	}
	list, err := files.Load(i.path, maxIdentitiesFile, time.Now(), decodeIdentities)
	switch {
	case errors.Is(err, files.ErrUnusable):
		i.lost(err)
	case err != nil:
		i.report(complaint.Problem{Source: FileSource, Name: i.path, Reason: manifest.Unreadable,
			Message: strictyaml.OneLine(err.Error()) + "; static pods that another agent started and " +
				"that do not run now start with another UID"})
	}
	for _, e := range list {
		i.known[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}] = e
	}
	i.saved = files.NewRecord(i.path, maxIdentitiesFile, i.list())
}

// list returns the known identities by namespace and name.
func (i *Identities) list() []identity {
	return slices.SortedFunc(maps.Values(i.known), func(a, b identity) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func decodeIdentities(raw []byte) (list []identity, err error) {
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("decode %s: %w", IdentitiesFile, err)
	}
	for _, e := range list {
		if !manifest.SafeUID.MatchString(string(e.UID)) || e.Name == "" || e.Manifest == "" {
			return nil, fmt.Errorf("decode %s: the entry of pod %s/%s is not whole", IdentitiesFile,
				e.Namespace, e.Name)
		}
	}
	return list, nil
}

// save writes what is remembered, unless the file has it. Identities that no manifest asked for since
// the start are dropped when there are more than a source has pods.
func (i *Identities) save() {
	if slices.Equal(i.list(), i.saved.Get()) {
		return
	}
	if len(i.known) > manifest.MaxPods {
		maps.DeleteFunc(i.known, func(name types.NamespacedName, _ identity) bool {
			return !i.asked[name]
		})
	}
	problem := complaint.Problem{Source: FileSource, Name: i.path}
	if err := i.saved.Set(i.list()); err != nil {
		problem.Reason = manifest.Unreadable
		problem.Message = strictyaml.OneLine(err.Error()) + "; make room or make it writable: " +
			"until then a restart may give static pods another UID"
	}
	i.report(problem)
}
