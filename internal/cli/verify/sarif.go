package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// These types are the part of SARIF 2.1.0 (OASIS Standard, 27 March 2020) that a report needs.
// A library would add all types and a schema validator, but the validator does not check the
// demands of viewers: rule indexes, fingerprints and relative paths. The tests check both.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool              sarifTool         `json:"tool"`
	AutomationDetails sarifAutomation   `json:"automationDetails"`
	ColumnKind        string            `json:"columnKind"`
	Invocations       []sarifInvocation `json:"invocations"`
	Results           []sarifResult     `json:"results"`
}

type sarifAutomation struct {
	ID string `json:"id"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name           string      `json:"name"`
	InformationURI string      `json:"informationUri"`
	Rules          []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID               string          `json:"id"`
	Name             string          `json:"name"`
	ShortDescription sarifText       `json:"shortDescription"`
	FullDescription  sarifText       `json:"fullDescription"`
	Help             sarifText       `json:"help"`
	Configuration    sarifLevel      `json:"defaultConfiguration"`
	Properties       sarifProperties `json:"properties"`
}

type sarifText struct {
	Text     string `json:"text"`
	Markdown string `json:"markdown,omitempty"`
}

type sarifLevel struct {
	Level string `json:"level"`
}

type sarifProperties struct {
	Tags []string `json:"tags"`
}

type sarifInvocation struct {
	Successful    bool                `json:"executionSuccessful"`
	Notifications []sarifNotification `json:"toolExecutionNotifications,omitempty"`
}

type sarifNotification struct {
	Level   string    `json:"level"`
	Message sarifText `json:"message"`
}

type sarifResult struct {
	RuleID       string             `json:"ruleId"`
	RuleIndex    int                `json:"ruleIndex"`
	Level        string             `json:"level"`
	Message      sarifText          `json:"message"`
	Locations    []sarifLocation    `json:"locations"`
	Fingerprints map[string]string  `json:"partialFingerprints"`
	Suppressions []sarifSuppression `json:"suppressions,omitempty"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   sarifRegion   `json:"region"`
}

type sarifArtifact struct {
	URI       string `json:"uri"`
	URIBaseID string `json:"uriBaseId"`
}

type sarifRegion struct {
	StartLine int `json:"startLine"`
}

type sarifSuppression struct {
	Kind          string `json:"kind"`
	Status        string `json:"status"`
	Justification string `json:"justification"`
}

// SARIF's levels.
const (
	levelError   = "error"
	levelWarning = "warning"
	levelNote    = "note"
)

// ruleNotReady is the rule for objects that do not run and so cannot be judged, and ruleNotJudged the rule for other reasons
// why a fleet has no verdict.
const (
	ruleNotReady  = "not-ready"
	ruleNotJudged = "not-judged"
)

const (
	sarifSchema = "https://json.schemastore.org/sarif-2.1.0.json"
	homepage    = "https://github.com/tenure-dev/tenure"
)

// writeSARIF writes a run with a rule for each attack of the catalogue, and a result for
// each tenant and attack that got through (error), is not proven (warning) or lacks a
// layer (note). A stopped attack is not a result: viewers present every result as a
// problem. An attack on a part that is not installed is a notification.
func (r report) writeSARIF(w io.Writer, catalogue []catalog.Attack) error {
	s := &sarifRun{
		Tool:              sarifTool{sarifDriver{Name: "tenure", InformationURI: homepage}},
		AutomationDetails: sarifAutomation{"tenure-verify/"},
		ColumnKind:        "unicodeCodePoints",
		Invocations:       []sarifInvocation{{Successful: true}},
		Results:           []sarifResult{},
	}
	index := map[string]int{}
	for _, a := range catalogue {
		index[a.Key()] = len(s.Tool.Driver.Rules)
		s.Tool.Driver.Rules = append(s.Tool.Driver.Rules, newRule(a))
	}
	for _, rule := range []sarifRule{notReadyRule(), notJudgedRule()} {
		index[rule.ID] = len(s.Tool.Driver.Rules)
		s.Tool.Driver.Rules = append(s.Tool.Driver.Rules, rule)
	}
	for _, c := range r.Clusters {
		if c.Error != "" {
			s.Invocations[0].Successful = false
			s.Invocations[0].Notifications = append(s.Invocations[0].Notifications, sarifNotification{levelError, sarifText{Text: c.Path + ": " + c.Error}})
		}
		if why := c.unjudged(); why != "" {
			s.add(c, index, ruleNotJudged, levelWarning, "the fleet is not judged: "+why, location{})
		}
		for _, n := range c.NotReady {
			s.add(c, index, ruleNotReady, levelWarning, n.Object+" is not ready: "+n.Reason, location{}, n.Object)
		}
		for _, a := range c.Attacks {
			s.attack(c, index, a)
		}
	}
	for _, e := range r.Stale {
		s.Invocations[0].Notifications = append(s.Invocations[0].Notifications, sarifNotification{levelWarning, sarifText{
			Text: "stale: " + e.String(),
		}})
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(sarifLog{Schema: sarifSchema, Version: "2.1.0", Runs: []sarifRun{*s}})
}

func (s *sarifRun) attack(c clusterReport, index map[string]int, a attackMade) {
	switch {
	case a.Outcome == string(catalog.GotThrough):
		s.add(c, index, a.Key, levelError, a.sentence(), a.location, a.Tenant)
		s.suppress(a.Accepted)
	case a.Outcome == string(catalog.NotProven):
		s.add(c, index, a.Key, levelWarning, a.sentence(), a.location, a.Tenant)
		s.suppress(a.Accepted)
	case a.Outcome == string(catalog.NotInstalled):
		s.Invocations[0].Notifications = append(s.Invocations[0].Notifications, sarifNotification{levelNote, sarifText{Text: ui.Clean(c.Path + ": " + a.sentence() + " (" + a.Key + ")")}})
	default:
		for _, layer := range a.Missing {
			s.add(c, index, a.Key, levelNote, a.sentence()+"; one layer is missing: "+layer, a.location, a.Tenant, layer)
		}
	}
}

// suppress marks the last result as accepted if accepted is not nil.
func (s *sarifRun) suppress(accepted *acceptance) {
	if accepted != nil {
		s.Results[len(s.Results)-1].Suppressions = []sarifSuppression{{
			Kind: "external", Status: "accepted", Justification: "accepted " + accepted.String(),
		}}
	}
}

// add adds a result. Its fingerprint depends only on the cluster, the rule and apart, and not on
// the content of files or on messages.
func (s *sarifRun) add(c clusterReport, index map[string]int, rule, level, text string, at location, apart ...string) {
	if at.file == "" {
		at = c.location
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", append([]string{c.Path, rule}, apart...)))
	fingerprint := hex.EncodeToString(sum[:16])
	s.Results = append(s.Results, sarifResult{
		RuleID: rule, RuleIndex: index[rule], Level: level,
		Message: sarifText{Text: ui.Clean(c.Path + ": " + text)},
		Locations: []sarifLocation{{sarifPhysical{
			Artifact: sarifArtifact{URI: uri(at.file), URIBaseID: "%SRCROOT%"},
			Region:   sarifRegion{StartLine: at.line},
		}}},
		// GitHub reads only the second name. Without it, GitHub treats all results of one line as
		// one.
		Fingerprints: map[string]string{"tenureFinding/v1": fingerprint, "primaryLocationLineHash": fingerprint},
	})
}

func newRule(a catalog.Attack) sarifRule {
	title := "a tenant " + a.Title
	help := "Stopped by: " + strings.Join(a.Controls, "; ") + ".\n"
	markdown := "**Stopped by:** " + strings.Join(a.Controls, "; ") + "\n"
	if a.Fix.Advice != "" {
		help += "Fix: " + a.Fix.Advice + ".\n"
		markdown += "\n**Fix:** " + a.Fix.Advice + "\n"
	}
	if len(a.References) > 0 {
		help += "References: " + strings.Join(a.References, "; ") + ".\n"
		markdown += "\n**References:** " + strings.Join(a.References, "; ") + "\n"
	}
	return sarifRule{
		ID: a.Key(), Name: "Attack" + strings.NewReplacer("-", "", " ", "").Replace(a.Key()),
		ShortDescription: sarifText{Text: title}, FullDescription: sarifText{Text: title + ", " + via(string(a.Via))},
		Help:          sarifText{Text: help, Markdown: markdown},
		Configuration: sarifLevel{levelError}, Properties: sarifProperties{append([]string{"security", "multi-tenancy"}, a.References...)},
	}
}

// fleetRule returns a rule about a fleet that cannot be judged.
func fleetRule(id, name, text, help string) sarifRule {
	return sarifRule{
		ID: id, Name: name,
		ShortDescription: sarifText{Text: text}, FullDescription: sarifText{Text: text},
		Help:          sarifText{Text: help},
		Configuration: sarifLevel{levelWarning}, Properties: sarifProperties{[]string{"multi-tenancy"}},
	}
}

func notReadyRule() sarifRule {
	return fleetRule(ruleNotReady, "NotReady", "an object of the fleet does not become ready on a local cluster, so the fleet cannot be judged",
		"Run tenure up with the same flags and look at the object.\n")
}

func notJudgedRule() sarifRule {
	return fleetRule(ruleNotJudged, "NotJudged", "the fleet cannot be judged: it has no tenants, parts of it are invented or assumed, or it lacks the targets of all attacks",
		"Name the namespaces of tenants with --tenants, map the addresses of the fleet, or apply its Secrets with --apply.\n")
}
