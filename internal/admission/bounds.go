package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

const (
	// reconcileEvery is the annotation that gives an ArtifactGenerator an interval.
	reconcileEvery = "source.extensions.fluxcd.io/reconcileEvery"
	// operatorEvery and operatorTimeout are the annotations that give the kinds of
	// flux-operator an interval and a timeout.
	operatorEvery   = groupOperator + "/reconcileEvery"
	operatorTimeout = groupOperator + "/reconcileTimeout"
)

// bounds returns the rule that limits intervals, timeouts and the work of a single
// object, so that no tenant takes Flux's time from the others.
func bounds() Rule {
	limits := posture + ".bounds"
	r := Rule{
		Name: Prefix + "bounds", Rows: []string{"A1", "A3"},
		Title:     "intervals, timeouts, expressions and templates are within the limits",
		resources: append(fluxKinds(writes), on(writes, groupExtensions, "artifactgenerators"), on(writes, groupOperator, "resourcesets", "resourcesetinputproviders")),
		scope:     fluxObjects,
	}
	for _, field := range []string{
		"spec.interval", "spec.retryInterval", "spec.chart.spec.interval",
		"spec.install.strategy.retryInterval", "spec.upgrade.strategy.retryInterval",
	} {
		r.validations = append(r.validations, validation{
			path(field, "duration(%s) >= duration("+limits+".minInterval)"),
			objectPhrase + " + " + quote("needs a longer "+field+": at least ") + " + " + limits + ".minInterval + ', not ' + " + short("object."+field),
		})
	}
	for _, field := range []string{"spec.timeout", "spec.install.timeout", "spec.upgrade.timeout", "spec.test.timeout", "spec.rollback.timeout", "spec.uninstall.timeout"} {
		r.validations = append(r.validations, validation{
			path(field, "duration(%s) <= duration("+limits+".maxTimeout)"),
			objectPhrase + " + " + quote("needs a shorter "+field+": at most ") + " + " + limits + ".maxTimeout + ', not ' + " + short("object."+field),
		})
	}
	// A Kustomization without a timeout uses its interval as the timeout.
	r.validations = append(r.validations, validation{
		"object.kind != 'Kustomization' || has(object.spec.timeout) || duration(object.spec.interval) <= duration(" + limits + ".maxTimeout) ||" +
			" !(has(object.spec.wait) && object.spec.wait || has(object.spec.healthChecks) && size(object.spec.healthChecks) > 0" +
			" || has(object.spec.deletionPolicy) && object.spec.deletionPolicy == 'WaitForTermination')",
		objectPhrase + " + 'needs spec.timeout, at most ' + " + limits + ".maxTimeout + ': without it, it waits for as long as spec.interval'",
	}, validation{
		// helm-controller uses this timeout if a HelmRelease sets none.
		"object.kind != 'HelmRelease' || has(object.spec.timeout) || duration('5m') <= duration(" + limits + ".maxTimeout)",
		objectPhrase + " + 'needs spec.timeout, at most ' + " + limits + ".maxTimeout + ': without it, it waits for 5m'",
	})
	r.validations = append(r.validations, generators(limits)...)
	r.validations = append(r.validations, inclusions()...)
	for _, field := range []string{
		"spec.oidcProviders[].validations[].expression", "spec.oidcProviders[].variables[].expression",
		"spec.dependsOn[].readyExpr", "spec.healthCheckExprs[].current", "spec.healthCheckExprs[].inProgress", "spec.healthCheckExprs[].failed",
		"spec.resourceFilter", "spec.resources[].filter", "spec.commitStatusExpr",
	} {
		r.validations = append(r.validations, validation{
			path(field, cheap),
			objectPhrase + " + " + quote(fmt.Sprintf("needs a simpler expression in %s: at most %d characters, no comment, no more than two of all, exists, exists_one and filter, and of functions only %s",
				field, maxExpression, strings.ReplaceAll(functions, "|", ", "))),
		})
	}
	r.validations = append(r.validations, validation{
		path("spec.oidcProviders[].variables[].expression", "!%s.contains('vars') && !%s.contains('+')"),
		objectPhrase + " + " + quote("needs a simpler expression in spec.oidcProviders[].variables[].expression: without + and without vars, since each variable could be a multiple of the one before"),
	})
	r.validations = append(r.validations, validation{
		path("spec.git.commit.messageTemplate", fmt.Sprintf("size(%%s) <= %[1]d && %%s.matches('%[2]s') && [%%s.findAll('%[3]s')].all(f, size(f) <= 1 && f.all(r, size(%%s.split(r.substring(r.lastIndexOf('$')).findAll('^[$][A-Za-z0-9_]+')[0])) == 3))", maxExpression, messageTemplate, rangeVariable)),
		objectPhrase + " + " + quote(fmt.Sprintf("needs a simpler template in spec.git.commit.messageTemplate: at most %d characters; range over .Changed, .Updated and .Values, and once over a variable that has no other use; if, else and end; no other assignment and no parentheses; of functions only %s",
			maxExpression, strings.ReplaceAll(templateFunctions, "|", ", "))),
	})
	return r
}

// templateFunctions are the functions that a template of a commit message may call. Their results are
// hardly larger than their arguments.
const templateFunctions = "and|contains|date|default|eq|hasPrefix|hasSuffix|index|len|lower|ne|not|now|or|print|println|quote|squote|toString|trim|trimPrefix|trimSuffix|trunc|upper"

// messageTemplate is a regular expression for templates that need time and memory in proportion to the
// changes in the commit. Each range in them loops over a list in the template's data, where the dot is not
// an element of another list, or over a variable of another range: see [rangeVariable].
var messageTemplate = func() string {
	const (
		space    = "[[:space:]]"
		variable = "[$][A-Za-z_][A-Za-z0-9_]*"
		operand  = `([.][A-Za-z0-9_.]*|` + variable + `[A-Za-z0-9_.]*|"[A-Za-z0-9 .,:/_+-]*"|[0-9]{1,4})`
		call     = "(" + templateFunctions + ")"
		pipeline = "(" + call + space + "+)?" + operand + "(" + space + "+" + operand + ")*"
		value    = "(" + pipeline + "|" + call + ")(" + space + "*[|]" + space + "*" + call + "(" + space + "+" + operand + ")*)*"
		loop     = "range" + space + "+(" + variable + space + "*(," + space + "*" + variable + space + "*)?:=" + space + "*)?([.](Changed|Updated|Values)[A-Za-z0-9_.]*|" + variable + ")"
		action   = "[{][{]-?" + space + "*(" + loop + "|(else" + space + "+)?if" + space + "+" + value + "|else|end|" + value + ")" + space + "*-?[}][}]"
	)
	return "^([^{]|[{][^{]|" + action + ")*[{]?$"
}()

// rangeVariable is a regular expression for a range over a variable. With two of them, or if the template
// printed the variable in the range, the message could grow with the square of the changes.
const rangeVariable = "range[[:space:]]+([^{}]*:=[[:space:]]*)?[$][A-Za-z0-9_]+[[:space:]]*-?[}][}]"

// maxExpression is the maximum number of characters of a CEL expression in a tenant's object.
const maxExpression = 1024

// functions are the functions and macros that a CEL expression in a tenant's object may call. Their results
// are not larger than their arguments. Flux's controllers evaluate expressions in their own processes,
// where all tenants share the time and the memory.
const functions = "all|charAt|contains|double|duration|endsWith|exists|exists_one|filter|first|has|hasValue|indexOf|int|last|lowerAscii|matches|orValue|size|split|startsWith|string|substring|timestamp|trim|uint|upperAscii|value"

// cheap is CEL that is true for the text of an expression that needs little time and memory. The expression
// may contain at most two macros, and no comment, which could hide the name of a function.
var cheap = fmt.Sprintf("size(%%s) <= %d && !%%s.contains('//') && %%s.findAll('[A-Za-z_][A-Za-z0-9_]*[[:space:]]*[(]').all(c, c.matches('^(in|%s)[[:space:]]*[(]$'))"+
	" && size(%%s.findAll('(all|exists|exists_one|filter)[[:space:]]*[(]')) <= 2", maxExpression, functions)

// annotated returns the bound of a duration in an annotation of some kinds.
func annotated(kinds, annotation, holds, wanted, limit string) validation {
	bound := map[string]string{">=": "least", "<=": "most"}[holds]
	value := "object.metadata.annotations['" + annotation + "']"
	return validation{
		"!(request.resource.resource in [" + kinds + "]) || !has(object.metadata.annotations) || !('" + annotation + "' in object.metadata.annotations) || duration(" + value + ") " + holds + " duration(" + limit + ")",
		objectPhrase + " + " + quote("needs a "+wanted+" in its annotation "+annotation+": at "+bound+" ") + " + " + limit + " + ', not ' + " + short(value),
	}
}

// inclusions returns the bounds of artifacts that contain artifacts of other objects. No rule can see whether
// two of them contain each other, and then both grow at each interval until the disk of their controller is
// full. A shard has a disk of its own.
func inclusions() []validation {
	var all []validation
	for _, c := range []struct{ includes, what string }{
		{"object.kind == 'GitRepository' && has(object.spec.include) && size(object.spec.include) > 0", "include other repositories in spec.include"},
		{"object.kind == 'ArtifactGenerator' && has(object.spec.sources) && object.spec.sources.exists(s, has(s.kind) && s.kind == 'ExternalArtifact')", "read an ExternalArtifact in spec.sources"},
	} {
		all = append(all, validation{
			// The rule tenure-shards makes sure that this label is the namespace's.
			"!(" + c.includes + ") || " + shardOf("object") + " != ''",
			objectPhrase + " + 'may " + c.what + " in a shard only, since artifacts that contain each other grow without end: ask the platform team to give the namespace the label " + v1alpha1.LabelShard + "'",
		})
	}
	return all
}

// generators returns the bounds of the durations in annotations, and those of
// ArtifactGenerators. A quota limits how many of them a namespace has.
func generators(limits string) []validation {
	const operated = "'resourcesets', 'resourcesetinputproviders'"
	lists := []validation{
		annotated("'artifactgenerators'", reconcileEvery, ">=", "longer interval", limits+".minInterval"),
		annotated(operated, operatorEvery, ">=", "longer interval", limits+".minInterval"),
		annotated(operated, operatorTimeout, "<=", "shorter timeout", limits+".maxTimeout"),
	}
	for _, l := range []struct{ name, holds string }{
		{"sources", "!has(object.spec.sources) || size(object.spec.sources) <= %s"},
		{"artifacts", "!has(object.spec.artifacts) || size(object.spec.artifacts) <= %s"},
		{"copies in an artifact", "!has(object.spec.artifacts) || object.spec.artifacts.all(a, !has(a.copy) || size(a.copy) <= %s)"},
	} {
		lists = append(lists, validation{
			"object.kind != 'ArtifactGenerator' || " + fmt.Sprintf(l.holds, limits+".maxObjects"),
			objectPhrase + " + 'has too many " + l.name + ": at most ' + string(" + limits + ".maxObjects)",
		})
	}
	return lists
}
