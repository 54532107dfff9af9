package source

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/podspec"
)

// Op is what happened to the pods of an Update.
type Op string

// The operations. For one set they are sent in the order REMOVE, ADD, UPDATE, DELETE, RETRY,
// RECONCILE.
const (
	// ADD: the source did not have these pods before. The first set of a source that has no pods
	// is one ADD without pods, so that the source counts as seen.
	ADD Op = "ADD"
	// UPDATE: spec, labels, annotations or deletion of these pods changed.
	UPDATE Op = "UPDATE"
	// DELETE: these pods are to end gracefully; they have a deletion timestamp.
	DELETE Op = "DELETE"
	// REMOVE: the source no longer has these pods.
	REMOVE Op = "REMOVE"
	// RETRY: somebody wrote these pods again as they were.
	RETRY Op = "RETRY"
	// RECONCILE: only the status of these pods differs.
	RECONCILE Op = "RECONCILE"
)

// Update is one kind of change to some pods of one source.
type Update struct {
	Op     Op
	Source string
	Pods   []*v1.Pod
}

// The names of the sources, as in the annotation kubernetes.io/config.source.
const (
	FileSource = "file"
	HTTPSource = "http"
	APISource  = podspec.APISource
)

// Annotations that are local to this node.
const (
	AnnotationSource = podspec.AnnotationSource
	AnnotationSeen   = "kubernetes.io/config.seen"
	AnnotationHash   = "kubernetes.io/config.hash"
	AnnotationMirror = "kubernetes.io/config.mirror"
	// AnnotationManifest is the UID made of the manifest of a pod that came without one. The pod
	// has another UID if another agent started it (Identities). Only pods of files and URLs have it.
	AnnotationManifest = "numalet.io/manifest"
)

// Problem is something that keeps a source or one of its pods from being used as written. Each is
// reported once, and again only when its cause changed. Of one name at most one problem stands at
// a time: a report takes the place of the one before, and one without a message says that the
// problem is over.
type Problem struct {
	// Source is FileSource, HTTPSource or APISource.
	Source string
	// Name is the file, the URL (with the place of the pod in a list) or the pod's full name.
	Name   string
	Reason string
	// Message is one line.
	Message string
}

// The reasons of problems.
const (
	// FailedValidation: the pod breaks a rule of the API, or another one has its name.
	FailedValidation = "FailedValidation"
	// Unreadable: file, directory or URL cannot be read.
	Unreadable = "Unreadable"
	// Absent: nothing is where manifests should be.
	Absent = "Absent"
	// InvalidManifest: the content is no Pod.
	InvalidManifest = "InvalidManifest"
	// IgnoredField: a warning; the pod is used without the fields that are named.
	IgnoredField = "IgnoredField"
)

// Feed is one source of pods. Run calls deliver with the full set whenever it may have changed,
// each time with a new slice, and returns when ctx ends.
type Feed interface {
	Name() string
	Run(ctx context.Context, deliver func([]*v1.Pod)) error
}
