package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/test/cluster/drivers"
)

// followClaims records what becomes of the claims.
func (s *scenarioNode) followClaims(t *testing.T) {
	t.Helper()
	last := map[string]string{}
	followOf(t, s.Client.ResourceV1().RESTClient(), "resourceclaims", s.Namespace,
		func(c *resourcev1.ResourceClaim, gone bool) {
			pod := c.Labels["of"]
			for _, owner := range c.OwnerReferences {
				pod = owner.Name
			}
			is := fmt.Sprintf("reserved for %d", len(c.Status.ReservedFor))
			switch {
			case gone:
				is = "gone"
			case c.Status.Allocation == nil:
				is = "not allocated"
			case c.DeletionTimestamp != nil:
				is += ", deleted"
			}
			if last[c.Name] != is {
				last[c.Name] = is
				s.Called(pod, "claim "+claimName(c.Name, pod), is)
			}
		})
}

var generated = regexp.MustCompile(`-[a-z0-9]{5}$`)

// claimName returns a claim's name without what is of a run.
func claimName(name, pod string) string {
	return generated.ReplaceAllString(strings.TrimPrefix(name, pod+"-"), "-*")
}

// tell records the calls that have ended and are not recorded yet.
func (s *scenarioNode) tell(pod string) {
	of := s.driversOf(pod)
	for _, d := range of.running {
		calls := d.Calls()
		for _, c := range calls[of.reported[d]:] {
			if c.Ended.IsZero() && c.Method != "NodeWatchResources" {
				break
			}
			of.reported[d]++
			var words []string
			for _, one := range c.Claims {
				word := claimName(one.Name, pod)
				if c.Method == drivers.Prepare {
					word += fmt.Sprintf(" (%d CDI)", len(c.CDI[one.UID]))
				}
				if why := c.Refused[one.UID]; why != "" {
					word += ": " + why
				}
				words = append(words, word)
			}
			slices.Sort(words)
			is := strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Service, c.Method, strings.Join(words, ", ")))
			if c.Err != nil && c.Method != "NodeWatchResources" {
				is += ": " + c.Err.Error()
			}
			field := "driver " // what is about claims; when health is asked for, each agent decides
			if len(c.Claims) == 0 {
				field = c.Method + " of "
			}
			s.calledOnce(pod, field+d.Name(), is)
		}
	}
}

// calledOnce records a call, unless the one before it was the same: agents try again.
func (s *scenarioNode) calledOnce(pod, what, is string) {
	key := pod + " " + what
	s.mu.Lock()
	again := s.lastCall[key] == is
	if s.lastCall == nil {
		s.lastCall = map[string]string{}
	}
	s.lastCall[key] = is
	s.mu.Unlock()
	if !again {
		s.Called(pod, what, is)
	}
}

// mark records at this moment which calls there were, and what the agent tells of the pod's claims.
func mark(when string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		s.tell(pod)
		for _, d := range s.driversOf(pod).running {
			s.calledOnce(pod, "driver "+d.Name(), "-- "+when)
		}
		reported, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		kept, err := s.checkpoint(pod)
		if err != nil {
			return err
		}
		s.Called(pod, "podresources", when+": "+s.nodeless(reported))
		s.Called(pod, "checkpoint", when+": "+s.nodeless(kept))
		s.Called(pod, "cdi", when+": "+s.given(pod))
		if is := s.seen(pod); is != nil {
			s.Called(pod, "health", when+": "+s.healthOf(is.Status.ContainerStatuses))
			s.Called(pod, "health of init", when+": "+s.healthOf(is.Status.InitContainerStatuses))
		}
		return nil
	}
}

var uids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (s *scenarioNode) nodeless(text string) string {
	return uids.ReplaceAllString(strings.ReplaceAll(text, s.Name+"/", "NODE/"), "UID")
}

// given lists the CDI devices of the pod's running containers in the runtime.
func (s *scenarioNode) given(pod string) string {
	var out []string
	for _, c := range s.Runtime.State().Containers {
		if c.Subject.Pod != pod || !c.Running() {
			continue
		}
		for _, device := range c.Config.GetCDIDevices() {
			out = append(out, c.Subject.Container+" "+s.nodeless(device.GetName()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// healthOf formats the health of devices in statuses.
func (s *scenarioNode) healthOf(all []v1.ContainerStatus) string {
	var out []string
	for _, c := range all {
		for _, of := range c.AllocatedResourcesStatus {
			for _, h := range of.Resources {
				is := fmt.Sprintf("%s has %s: %s %s", c.Name, of.Name, s.nodeless(string(h.ResourceID)),
					h.Health)
				if h.Message != nil {
					is += ", " + *h.Message
				}
				out = append(out, is)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func (s *scenarioNode) podResources(ctx context.Context, pod string) (string, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(s.Root, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	list, err := podresourcesv1.NewPodResourcesListerClient(conn).List(ctx,
		&podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return "", err
	}
	var out []string
	for _, p := range list.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, claim := range c.GetDynamicResources() {
				for _, r := range claim.GetClaimResources() {
					if p.GetName() == pod && p.GetNamespace() == s.Namespace {
						out = append(out, fmt.Sprintf("%s has %s: %s/%s/%s %v", c.GetName(),
							claimName(claim.GetClaimName(), pod), r.GetDriverName(), r.GetPoolName(),
							r.GetDeviceName(), r.GetCdiDevices()))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; "), nil
}

// claimOfPod matches a claim's name without the pod's: other pods have names that begin alike.
var claimOfPod = regexp.MustCompile(`^(gpu|named|extended-resources)\b`)

// checkpoint formats what the kubelet's checkpoint has of the pod's claims.
func (s *scenarioNode) checkpoint(pod string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.Root, "dra_manager_state"))
	if os.IsNotExist(err) {
		return "", nil
	}
	var outer struct{ Data string }
	var inner struct {
		ClaimInfoStateList []struct {
			ClaimName, Namespace string
			PodUIDs              map[string]any
			DriverState          map[string]json.RawMessage
		}
	}
	if err := errors.Join(err, json.Unmarshal(raw, &outer), json.Unmarshal([]byte(outer.Data), &inner)); err != nil {
		return "", err
	}
	var out []string
	for _, claim := range inner.ClaimInfoStateList {
		of, is := strings.CutPrefix(claim.ClaimName, pod+"-")
		if claim.Namespace != s.Namespace || !is || !claimOfPod.MatchString(of) {
			continue
		}
		state, err := json.Marshal(claim.DriverState)
		if err != nil {
			return "", err
		}
		text := strings.ReplaceAll(string(state), `"PoolName":"`+s.Name+`"`, `"PoolName":"NODE"`)
		out = append(out, fmt.Sprintf("%s of %d pods: %s", claimName(claim.ClaimName, pod),
			len(claim.PodUIDs), text))
	}
	slices.Sort(out)
	return strings.Join(out, "; "), nil
}

// show logs the records of scenarios.
func (s *scenarioNode) show(t *testing.T, some []scenario) {
	t.Helper()
	all := s.Histories(s.Runtime.Journal(0))
	for _, one := range some {
		var lines []string
		for field, values := range all[one.podName(1, s)] {
			var texts []string
			for _, v := range values {
				texts = append(texts, v.Is)
			}
			lines = append(lines, fmt.Sprintf("  %s:\n      %s", field, strings.Join(texts, "\n      ")))
		}
		slices.Sort(lines)
		t.Logf("%s\n%s", one.name, strings.Join(lines, "\n"))
	}
}
