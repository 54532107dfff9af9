package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// TestRestartAll: if a container exits with a code whose rule says so, all containers of its pod
// restart in the same sandbox, and their logs stay. Both agents end with the same status. The
// scheduler places the pod only on a node that declares the feature.
func TestRestartAll(t *testing.T) {
	reported := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			s := newSide(t, agent)
			s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: again}, spec: {
 restartPolicy: Never, nodeSelector: {kubernetes.io/hostname: %s}, automountServiceAccountToken: false,
 initContainers: [{name: first, image: "%s", imagePullPolicy: IfNotPresent},
  {name: side, image: "%s", imagePullPolicy: IfNotPresent, restartPolicy: Always}],
 containers: [{name: db, image: "%[3]s", imagePullPolicy: IfNotPresent},
  {name: web, image: "%[3]s", imagePullPolicy: IfNotPresent, restartPolicy: Never,
   restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}]}}`,
				s.Name, doneImage, rootImage))
			before := await(t, s.Cluster, s.Namespace, "again", runs)
			sandbox := sandboxOf(s, before)
			if err := s.Runtime.Exit("again/web", crisim.Exit{Code: 42}); err != nil {
				t.Fatal(err)
			}
			after := await(t, s.Cluster, s.Namespace, "again", func(p *v1.Pod) bool {
				return runs(p) && restartsOf(p)["web"] == 1
			})
			if got := sandboxOf(s, after); got != sandbox || after.Status.PodIP != before.Status.PodIP {
				t.Errorf("sandbox %s with %s, which was %s with %s", got, after.Status.PodIP, sandbox,
					before.Status.PodIP)
			}
			for _, name := range []string{"first", "side", "db", "web"} {
				var logs []string
				dir := filepath.Join(s.Dir, "logs",
					s.Namespace+"_again_"+string(after.UID), name)
				entries, err := os.ReadDir(dir)
				for _, e := range entries {
					logs = append(logs, e.Name())
				}
				if err != nil || !slices.Equal(logs, []string{"0.log", "1.log"}) {
					t.Errorf("%s has the logs %q, %v", name, logs, err)
				}
			}
			reported[agent] = lifeOf(after)
			s.MustRun("delete", "pod", "again", "--timeout=1m")
		})
	}
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
}

func sandboxOf(s *side, pod *v1.Pod) string {
	var ids []string
	for _, one := range s.Runtime.State().Sandboxes {
		if one.UID == string(pod.UID) {
			ids = append(ids, one.ID)
		}
	}
	return strings.Join(ids, " ")
}

func restartsOf(p *v1.Pod) map[string]int32 {
	out := map[string]int32{}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		out[c.Name] = c.RestartCount
	}
	return out
}

// lifeOf returns a status's containers and conditions, without ids and times.
func lifeOf(p *v1.Pod) string {
	var b strings.Builder
	end := func(s v1.ContainerState) string {
		switch {
		case s.Terminated != nil:
			return fmt.Sprintf("exited %d %s %q", s.Terminated.ExitCode, s.Terminated.Reason,
				s.Terminated.Message)
		case s.Waiting != nil:
			return s.Waiting.Reason
		default:
			return "runs"
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		fmt.Fprintf(&b, "%s #%d ready %t: %s", c.Name, c.RestartCount, c.Ready, end(c.State))
		if c.LastTerminationState.Terminated != nil {
			b.WriteString(", before: " + end(c.LastTerminationState))
		}
		b.WriteString("\n")
	}
	var conditions []string
	for _, c := range p.Status.Conditions {
		conditions = append(conditions, fmt.Sprintln(c.Type, c.Status, c.Reason, c.Message))
	}
	slices.Sort(conditions)
	return b.String() + strings.Join(conditions, "")
}
