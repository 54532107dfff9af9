package podspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
)

// Annotations by which a pod asks for its own placement. Other agents ignore them.
const (
	// AnnotationPolicy is a topology manager policy that the node allows pods to choose.
	AnnotationPolicy = "numalet.io/topology-policy"
	// AnnotationScope is a topology manager scope.
	AnnotationScope = "numalet.io/topology-scope"
	// AnnotationStrategy is a NUMA allocation strategy.
	AnnotationStrategy = "numalet.io/numa-allocation"
	// AnnotationIsolated: "true" demands exclusive CPUs that are isolated.
	AnnotationIsolated = "numalet.io/isolated-cpus"
	// AnnotationWholeCores: "true" demands exclusive CPUs that are whole cores, padded if the
	// number does not fill them.
	AnnotationWholeCores = "numalet.io/whole-cores"
)

var placementAnnotations = []string{
	AnnotationPolicy, AnnotationScope, AnnotationStrategy, AnnotationIsolated,
	AnnotationWholeCores,
}

// IsAgentAnnotation reports whether only the agent may write an annotation: all of our own except
// those by which a pod asks for a placement. It means nothing in a pod that others wrote.
func IsAgentAnnotation(name string) bool {
	return strings.HasPrefix(name, "numalet.io/") && !slices.Contains(placementAnnotations, name)
}

// PlacementAnnotations returns the placement annotations that the pod has, in order.
func PlacementAnnotations(pod *v1.Pod) (names []string) {
	for _, name := range placementAnnotations {
		if pod.Annotations[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// Rules returns the node's rules with the requests in the pod's annotations. The error names the
// annotation; the rules are then the node's.
func Rules(pod *v1.Pod, node topology.Rules) (topology.Rules, error) {
	if len(pod.Annotations) == 0 {
		return node, nil
	}
	var asked topology.Asked
	if err := cmp.Or(
		annotation(pod, AnnotationPolicy, &asked.Policy, topology.ParsePolicy),
		annotation(pod, AnnotationScope, &asked.Scope, topology.ParseScope),
		annotation(pod, AnnotationStrategy, &asked.Strategy, topology.ParseStrategy),
		readCPURules(pod, &asked.CPURules),
	); err != nil {
		return node, err
	}
	rules, err := node.For(asked)
	if err != nil {
		err = fmt.Errorf("annotation %s: %w", AnnotationPolicy, err)
	}
	return rules, err
}

// CPURules returns the rules that the pod asks for; none if an annotation cannot be read, which
// Rules reports.
func CPURules(pod *v1.Pod) (r topology.CPURules) {
	if len(pod.Annotations) > 0 && readCPURules(pod, &r) != nil {
		return topology.CPURules{}
	}
	return r
}

func readCPURules(pod *v1.Pod, into *topology.CPURules) error {
	return cmp.Or(
		annotation(pod, AnnotationIsolated, &into.Isolated, parseBool),
		annotation(pod, AnnotationWholeCores, &into.WholeCores, parseBool),
	)
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true", "false":
		return text == "true", nil
	}
	return false, fmt.Errorf("%q is neither true nor false", oneline.Cut(text, 64))
}

// annotation parses one annotation into into, unless it is missing or empty.
func annotation[T any](
	pod *v1.Pod, name string, into *T, parse func(string) (T, error),
) error {
	text := pod.Annotations[name]
	if text == "" {
		return nil
	}
	value, err := parse(text)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", name, err)
	}
	*into = value
	return nil
}
