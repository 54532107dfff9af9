package source

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Op is the kind of an Update.
type Op string

// The operations. Those of one set are sent in the order REMOVE, DELETE, RECONCILE, ADD, UPDATE,
// RETRY.
const (
	// ADD: the source did not have these pods before. The first set of a source is sent as an ADD even
	// if it is empty, so that the source counts as seen.
	ADD Op = "ADD"
	// UPDATE: spec, labels, annotations or deletion of these pods changed.
	UPDATE Op = "UPDATE"
	// DELETE: these pods must end gracefully; they have a deletion timestamp.
	DELETE Op = "DELETE"
	// REMOVE: the source no longer has these pods.
	REMOVE Op = "REMOVE"
	// RETRY: these pods were written again unchanged.
	RETRY Op = "RETRY"
	// RECONCILE: only the status of these pods changed.
	RECONCILE Op = "RECONCILE"
)

// Update is one kind of change to pods of one source.
type Update struct {
	Op     Op
	Source string
	Pods   []*v1.Pod
}

// The names of the sources, as in the annotation kubernetes.io/config.source.
const (
	FileSource = "file"
	HTTPSource = "http"
)

// Annotations that are local to this node.
const (
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationManifest is the UID derived from the manifest of a pod that came without one. The pod
	// has another UID if another agent started it (Identities). Only pods of files and URLs have it.
	AnnotationManifest = "numalet.io/manifest"
)

// Feed is one source of pods. Run calls deliver with the full set whenever it may have changed,
// each time with a new slice, and returns when ctx ends.
type Feed interface {
	Name() string
	Run(ctx context.Context, deliver func([]*v1.Pod)) error
}
