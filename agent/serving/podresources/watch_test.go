package podresources

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/internal/podtest"
)

// node is a server whose snapshot the test sets.
type node struct {
	server  *Server
	conn    *grpc.ClientConn
	changed chan struct{}

	mu  sync.Mutex // guards now
	now Snapshot
}

func newNode(t *testing.T, now Snapshot) *node {
	t.Helper()
	n := &node{now: now, changed: make(chan struct{}, 1)}
	socket := filepath.Join(t.TempDir(), "s")
	var err error
	if n.server, err = New(Config{Socket: socket, Changed: n.changed, Snapshot: func() Snapshot {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.now
	}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.server.Run(ctx) }()
	// A growing window would accept much before a client that does not read is noticed.
	n.conn, err = grpc.NewClient("unix://"+socket, grpc.WithInitialWindowSize(1<<16),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		n.conn.Close()
	})
	return n
}

// set replaces the pods by one with a long name, and signals the change.
func (n *node) set(name string) {
	pod := podtest.New(name+strings.Repeat("x", 4000), podtest.UID(name))
	n.mu.Lock()
	n.now.Pods = []*v1.Pod{pod}
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *node) watch(t *testing.T,
	req *watchv1.WatchRequest) grpc.ServerStreamingClient[watchv1.WatchResponse] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := watchv1.NewPodResourcesWatcherClient(n.conn).Watch(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// readUntil applies messages until the mirror is complete and holds returns true.
func readUntil(t *testing.T, stream grpc.ServerStreamingClient[watchv1.WatchResponse],
	m *watchv1.Mirror, holds func() bool) (snapshots int) {
	t.Helper()
	for {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetSnapshot() != nil {
			snapshots++
		}
		if m.Apply(r); m.Complete && holds() {
			return snapshots
		}
	}
}

func always() bool { return true }

// TestListThenWatch: List's headers name the generation from which a watch needs no snapshot.
func TestListThenWatch(t *testing.T) {
	n := newNode(t, snapshot())
	var header metadata.MD
	list, err := podresourcesv1.NewPodResourcesListerClient(n.conn).List(context.Background(),
		&podresourcesv1.ListPodResourcesRequest{}, grpc.Header(&header))
	if err != nil {
		t.Fatal(err)
	}
	generation, err := strconv.ParseUint(header.Get(watchv1.GenerationHeader)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var full watchv1.Mirror
	readUntil(t, n.watch(t, &watchv1.WatchRequest{}), &full, always)
	for i, pod := range full.Pods() {
		if got, want := compact(pod.Resources), compact(list.PodResources[i]); got != want {
			t.Errorf("watched %s, listed %s", got, want)
		}
	}
	if full.Generation != generation || full.Instance != header.Get(watchv1.InstanceHeader)[0] {
		t.Errorf("watch begins at %d of %s, headers %v", full.Generation, full.Instance, header)
	}

	stream := n.watch(t, &watchv1.WatchRequest{Instance: full.Instance, Generation: generation})
	n.set("next")
	onePod := func() bool { return len(full.Pods()) == 1 }
	if snapshots := readUntil(t, stream, &full, onePod); snapshots != 0 {
		t.Error("a watch that goes on began with a snapshot")
	}
	if pods := full.Pods(); pods[0].Uid != "next" {
		t.Errorf("pods %v", pods)
	}

	other := n.watch(t, &watchv1.WatchRequest{Instance: "of an agent that is gone", Generation: 1})
	r, err := other.Recv()
	if err != nil || !r.GetSnapshot().GetHistoryLost() || !r.Partial {
		t.Errorf("another instance: %v, %v, want a snapshot that says why", r, err)
	}
}

// TestStalledReader: a reader that does not read is disconnected. Others and the publisher are not
// affected, and the history stays within its bounds.
func TestStalledReader(t *testing.T) {
	n := newNode(t, snapshot())
	n.server.feed.refresh()
	n.server.feed.past.maxChanges = 50
	stalled := n.watch(t, &watchv1.WatchRequest{})
	if _, err := stalled.Recv(); err != nil { // it is open
		t.Fatal(err)
	}
	reading := n.watch(t, &watchv1.WatchRequest{})
	var m watchv1.Mirror
	readUntil(t, reading, &m, always)

	ended := false
	for i := 0; i < 20000 && !ended; i++ {
		name := fmt.Sprintf("pod-%d", i)
		n.set(name)
		readUntil(t, reading, &m,
			func() bool { return len(m.Pods()) == 1 && m.Pods()[0].Uid == name })
		n.server.feed.mu.Lock()
		ended = n.server.feed.readers == 1
		kept := len(n.server.feed.past.changes)
		n.server.feed.mu.Unlock()
		if kept > 50 {
			t.Fatalf("%d changes are kept", kept)
		}
	}
	if !ended {
		t.Fatal("the reader that does not read is still there")
	}
	var err error
	for err == nil { // messages sent before it was disconnected, then the reason
		_, err = stalled.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "fell behind") {
		t.Errorf("the stalled reader hears %v", err)
	}
}

func TestTooManyWatches(t *testing.T) {
	n := newNode(t, snapshot())
	for range maxReaders {
		if err := n.server.feed.join(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.watch(t, &watchv1.WatchRequest{}).Recv()
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "64 are open") {
		t.Errorf("one more watch: %v", err)
	}
	n.server.feed.leave()
	if _, err := n.watch(t, &watchv1.WatchRequest{}).Recv(); err != nil {
		t.Errorf("after one ended: %v", err)
	}
}

func TestOpeningIsRateLimited(t *testing.T) {
	n := newNode(t, snapshot())
	refused := false
	for i := 0; i < 2000 && !refused; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := watchv1.NewPodResourcesWatcherClient(n.conn).Watch(ctx,
			&watchv1.WatchRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		cancel()
		refused = err != nil && status.Convert(err).Message() == "rejected by rate limit"
	}
	if !refused {
		t.Error("2000 watches in a row were all opened")
	}
}

// TestWatchesEndWithTheServer: Run returns while readers read, and while they do not.
func TestWatchesEndWithTheServer(t *testing.T) {
	n := newNode(t, snapshot())
	for range 3 {
		if _, err := n.watch(t, &watchv1.WatchRequest{}).Recv(); err != nil {
			t.Fatal(err)
		}
	}
} // newNode's cleanup waits for Run

// TestQuietAndStuckReaders: as time passes, a reader that reads gets bookmarks, and one that does
// not is disconnected.
func TestQuietAndStuckReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(snapshot)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		bookmarks := 0
		quiet := &reader{feed: f, send: func(r *watchv1.WatchResponse) error {
			if r.GetBookmark() != nil && !r.Partial && r.Generation == 1 {
				bookmarks++
			}
			return nil
		}}
		stuck := &reader{feed: f, send: func(*watchv1.WatchResponse) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		ends := map[*reader]chan error{quiet: make(chan error, 1), stuck: make(chan error, 1)}
		for r, end := range ends {
			first := r.begin(&watchv1.WatchRequest{})
			sent := make(chan error, 1)
			go func() { sent <- r.run(ctx, first) }()
			go func() { end <- r.guard(sent) }()
		}
		time.Sleep(3*bookmarkPeriod + time.Second)
		synctest.Wait()
		if bookmarks != 4 { // one of them ends the snapshot
			t.Errorf("%d bookmarks", bookmarks)
		}
		select {
		case err := <-ends[stuck]:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the stuck reader ends with %v", err)
			}
		default:
			t.Error("the stuck reader is not dropped")
		}
		cancel()
		if err := <-ends[quiet]; status.Code(err) != codes.Canceled &&
			!errors.Is(err, context.Canceled) {
			t.Errorf("the quiet reader ends with %v", err)
		}
	})
}
