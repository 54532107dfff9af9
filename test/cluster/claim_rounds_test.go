package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/drivers"
	"github.com/numalet/numalet/test/harness"
)

// TestClaimRounds kills the agent, the driver, or both, at random moments while pods with resource
// claims start and end. No device is prepared for two claims at once, all pods run and end, and
// after each round nothing is left prepared. NUMALET_ROUNDS is the number of rounds,
// NUMALET_ROUNDS_SEED draws other moments.
func TestClaimRounds(t *testing.T) {
	rounds := harness.Number(t, "NUMALET_ROUNDS", 2)
	seed := harness.Number(t, "NUMALET_ROUNDS_SEED", 1795356351761480071)
	random := rand.New(rand.NewPCG(seed, 0))
	port, servers := newProbeServers(t, 1)
	s := newScenarioNode(t, "numalet", fmt.Sprint(port), servers[0])
	const driver = "rounds"
	if err := all(claimDriver("POD.io"), claimObjects(deviceClass, claimTemplate, namedClaim))(
		t.Context(), s, driver); err != nil {
		t.Fatal(err)
	}
	for round := range rounds {
		if err := s.round(t, random, driver, int(round)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	calls := first(s, driver).Calls()
	if twice := drivers.Twice(calls); len(twice) > 0 {
		t.Errorf("prepared for two claims at once: %s", strings.Join(twice, "; "))
	}
	t.Logf("%d rounds, %d calls to the driver", rounds, len(calls))
}

// round starts pods and ends them, with a kill at some moment of each.
func (s *scenarioNode) round(t *testing.T, random *rand.Rand, driver string, round int) error {
	ctx := t.Context()
	var names []string
	for i, spec := range []string{oneClaim, oneClaim,
		`resourceClaims: [{name: gpu, resourceClaimName: POD-named}], `,
		`resourceClaims: [{name: gpu, resourceClaimName: POD-named}], `} {
		pod, err := scenario{name: driver, spec: of(spec, usesClaim)}.pod(1, s)
		if err != nil {
			return err
		}
		pod.Name = fmt.Sprintf("%s-%d-%d", driver, round, i)
		s.scheduled(pod)
		names = append(names, pod.Name)
		if _, err := s.Client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := s.kill(ctx, random, driver); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.await(ctx, name, step{until: isReady}); err != nil {
			return fmt.Errorf("%s does not run: %w", name, err)
		}
	}
	for _, name := range names {
		if err := remove(-1)(ctx, s, name); err != nil {
			return err
		}
	}
	if err := s.kill(ctx, random, driver); err != nil {
		return err
	}
	return s.awaitNothing(ctx, driver, names)
}

// kill kills the agent, the driver, or both, after a moment, and starts them again.
func (s *scenarioNode) kill(ctx context.Context, random *rand.Rand, driver string) error {
	which, wait := random.IntN(3), time.Duration(random.IntN(1500))*time.Millisecond
	if !sleep(ctx, wait) {
		return ctx.Err()
	}
	d := first(s, driver)
	if which != 0 {
		if err := d.Kill(); err != nil {
			return err
		}
	}
	if which != 1 {
		s.Kill()
		s.Start()
	}
	if which != 0 {
		return d.Start(ctx)
	}
	return nil
}

// awaitNothing waits until the pods are gone and the driver has nothing prepared.
func (s *scenarioNode) awaitNothing(ctx context.Context, driver string, names []string) error {
	for began := time.Now(); ; {
		var left []error
		for _, name := range names {
			if pod := s.seen(name); pod != nil {
				left = append(left, fmt.Errorf("pod %s is still %s", name, phaseOf(pod)))
			}
		}
		held, unknown := drivers.Held(first(s, driver).Calls())
		if len(held)+len(unknown) > 0 {
			left = append(left, fmt.Errorf("prepared are %v, and perhaps %v", held, unknown))
		}
		if len(left) == 0 {
			return nil
		}
		if time.Since(began) > harness.Patience {
			return errors.Join(left...)
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func phaseOf(pod *v1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating, " + string(pod.Status.Phase)
	}
	return string(pod.Status.Phase)
}
