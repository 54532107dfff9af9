package crisim

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AnnotationPrefix starts the pod annotation with a container's Script; the container's name
// follows.
const AnnotationPrefix = "sim.numalet.io/"

// Exit codes of processes killed by a signal: 128 plus its number.
const (
	exitKilled     = 137
	exitTerminated = 143
)

// Script tells what a container does. Its text form is a list of key=value separated by spaces.
// Under the empty text it runs until it is stopped and exits on SIGTERM at once, with 143.
type Script struct {
	// Exits makes it end by itself, After its start; "exit=1 after=20ms".
	Exits bool
	After time.Duration
	Exit  Exit
	// Attempts limits Exits to that many first attempts ("attempts=2"); 0: all. Later ones run until
	// they are stopped, or exit with Then ("then=0").
	Attempts uint32
	Then     *int32
	// IgnoreTerm makes SIGTERM have no effect ("term=ignore"). Otherwise the container ends TermAfter
	// later with TermCode ("term=0 term-after=50ms").
	IgnoreTerm bool
	TermAfter  time.Duration
	TermCode   int32
	// StartError makes StartContainer fail; "start-error=no-such-file".
	StartError string
}

// Exit tells how a container ended. Message goes to the container's termination log.
type Exit struct {
	Code    int32  `json:"code"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// ParseScript reads the text form. An unknown key is an error that lists the known ones.
func ParseScript(text string) (Script, error) {
	s := Script{TermCode: exitTerminated}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		set, ok := scriptKeys[key]
		if !ok {
			return Script{}, fmt.Errorf("script %q: unknown key %q; known are exit, after, "+
				"attempts, then, term, term-after, reason, message, start-error", text, key)
		}
		if err := set(&s, value); err != nil {
			return Script{}, fmt.Errorf("script %q: %s: %w", text, key, err)
		}
	}
	return s, nil
}

var scriptKeys = map[string]func(*Script, string) error{
	"exit": func(s *Script, v string) (err error) {
		s.Exits = true
		s.Exit.Code, err = parseCode(v)
		return err
	},
	"after": func(s *Script, v string) (err error) {
		s.After, err = time.ParseDuration(v)
		return err
	},
	"attempts": func(s *Script, v string) error {
		n, err := strconv.ParseUint(v, 10, 32)
		s.Attempts = uint32(n)
		return err
	},
	"then": func(s *Script, v string) error {
		code, err := parseCode(v)
		s.Then = &code
		return err
	},
	"term": func(s *Script, v string) (err error) {
		if v == "ignore" {
			s.IgnoreTerm = true
			return nil
		}
		s.TermCode, err = parseCode(v)
		return err
	},
	"term-after": func(s *Script, v string) (err error) {
		s.TermAfter, err = time.ParseDuration(v)
		return err
	},
	"reason":      func(s *Script, v string) error { s.Exit.Reason = v; return nil },
	"message":     func(s *Script, v string) error { s.Exit.Message = v; return nil },
	"start-error": func(s *Script, v string) error { s.StartError = v; return nil },
}

func parseCode(v string) (int32, error) {
	n, err := strconv.ParseUint(v, 10, 8)
	return int32(n), err
}

// ScriptFor returns a container's script: the one in its pod's annotation, else that of its
// command, else that of its image. The error names an annotation that cannot be parsed.
func ScriptFor(pod *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) (Script, error) {
	name, attempt := c.GetMetadata().GetName(), c.GetMetadata().GetAttempt()
	if text, ok := pod.GetAnnotations()[AnnotationPrefix+name]; ok {
		s, err := ParseScript(text)
		if err != nil {
			return Script{}, fmt.Errorf("annotation %s%s: %w", AnnotationPrefix, name, err)
		}
		if s.Attempts > 0 && attempt >= s.Attempts {
			s.Exits = s.Then != nil
			if s.Exits {
				s.Exit = Exit{Code: *s.Then}
			}
		}
		return s, nil
	}
	words := append(append([]string(nil), c.GetCommand()...), c.GetArgs()...)
	if s, ok := commandScript(words); ok {
		return s, nil
	}
	return imageScript(cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage())), nil
}

func imageScript(image string) Script {
	s := Script{TermCode: exitTerminated}
	name, tag, _ := strings.Cut(path.Base(image), ":")
	if code, err := parseCode(tag); name == "exit" && err == nil {
		s.Exits, s.Exit.Code = true, code
	}
	return s
}

// commandScript understands a command whose words it all knows. Any other command runs until it is
// stopped.
func commandScript(words []string) (Script, bool) {
	if len(words) == 0 {
		return Script{}, false
	}
	s := Script{Exits: true, TermCode: exitTerminated}
	for _, st := range statements(words) {
		done, ok := s.run(st)
		if !ok {
			return Script{}, false
		}
		if done {
			break
		}
	}
	return s, true
}

// statements returns the statements after a shell's -c, or the command itself.
func statements(words []string) (out [][]string) {
	if len(words) < 3 || !strings.HasSuffix(path.Base(words[0]), "sh") || words[1] != "-c" {
		return [][]string{words}
	}
	text := strings.NewReplacer("&&", ";", "\n", ";").Replace(words[2])
	for _, st := range strings.Split(text, ";") {
		words := strings.Fields(st)
		if len(words) > 0 && words[0] == "exec" {
			words = words[1:]
		}
		if len(words) > 0 {
			out = append(out, words)
		}
	}
	return out
}

// run plays one statement. It reports whether the statement ends the script, and whether it is
// known.
func (s *Script) run(words []string) (done, ok bool) {
	switch path.Base(words[0]) {
	case "echo", "true", ":":
		s.Exit.Code = 0
		return false, true
	case "false":
		s.Exit.Code = 1
		return false, true
	case "trap":
		// trap '' TERM
		s.IgnoreTerm = len(words) > 2 && words[1] == "''"
		return false, true
	case "exit":
		if len(words) == 1 {
			return true, true
		}
		code, err := parseCode(words[1])
		s.Exit.Code = code
		return true, err == nil
	case "sleep":
		if len(words) != 2 {
			return false, false
		}
		return s.sleep(words[1])
	default:
		return false, false
	}
}

func (s *Script) sleep(arg string) (done, ok bool) {
	if strings.HasPrefix(arg, "inf") {
		s.Exits = false
		return true, true
	}
	if last := arg[len(arg)-1]; last >= '0' && last <= '9' {
		arg += "s"
	}
	if days, ok := strings.CutSuffix(arg, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		s.After += time.Duration(n * 24 * float64(time.Hour))
		return false, err == nil
	}
	d, err := time.ParseDuration(arg)
	s.After += d
	s.Exit.Code = 0
	return false, err == nil
}
