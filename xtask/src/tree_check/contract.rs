//! Checks that netsim's generic test covers the `wire::machine` contract of every machine.

use crate::source::{has_word, leading_name, line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Crates with machines that only delegate.
const EXEMPT: [&str; 5] = ["wire", "netsim", "servicer", "hub_nats", "bevy_tickwire"];
/// Single machines of other crates that only delegate to a tested machine and to system sockets.
const PASSES_ON: [(&str, &str); 1] = [("daemon", "NodeMachine")];
/// Names of netsim's contract tests.
const CONTRACT: [&str; 2] = ["check_contract", "check_stream_contract"];

/// Finds machines without a contract test in their crate.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &view.sources {
        let Some(name) = crate_of(source.path).filter(|name| !EXEMPT.contains(name)) else {
            continue;
        };
        for (machine, offset) in machines(&source.shipped) {
            let is_held = view.sources_of(name).any(|it| {
                CONTRACT.iter().any(|test| has_word(&it.tests, test))
                    && has_word(&it.tests, machine)
            });
            if !is_held && !PASSES_ON.contains(&(name, machine)) {
                findings.push(Finding::at(
                    source.path,
                    line_of(&source.shipped, offset),
                    format!("no test of {name} holds `{machine}` to the machines' contract"),
                ));
            }
        }
    }
    findings
}

/// Returns the types that implement a machine trait, each with the offset of the trait's name.
fn machines(code: &str) -> Vec<(&str, usize)> {
    ["Machine", "StreamMachine"]
        .iter()
        .flat_map(|name| words(code, name).map(move |at| (name, at)))
        .filter_map(|(name, at)| {
            let after = code.get(at + name.len()..)?.trim_start();
            let path = after.strip_prefix("for ")?.trim_start();
            let end = path.find(|char: char| !(char.is_alphanumeric() || "_:".contains(char)));
            let path = path.get(..end.unwrap_or(path.len()))?;
            let machine = leading_name(path.rsplit("::").next()?);
            // A reference or box of a machine only delegates.
            (!machine.is_empty() && machine != "Box").then_some((machine, at))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    const ENDPOINT: &str =
        "\nimpl<P: Provider> wire::Machine for Endpoint<P> {\n}\nimpl Machine for &mut X {}";

    fn lines(files: &[(&str, &str)]) -> Vec<usize> {
        let workspace = Workspace::of(files);
        let findings = check(&workspace.view());
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_a_machine_without_its_contract_test() {
        let machine = ("crates/udp_proto/src/endpoint.rs", ENDPOINT);
        let test = "impl ContractSubject for Pair { type Machine = Endpoint<Sim>; }\n\
                    fn t() { check_contract(Pair); }";
        assert_eq!(lines(&[machine]), [2]);
        assert_eq!(
            lines(&[machine, ("crates/hub/tests/it/contract.rs", test)]),
            [2]
        );
        let other = "fn t() { check_contract(Peer); } // Endpoint";
        assert_eq!(
            lines(&[machine, ("crates/udp_proto/tests/it/c.rs", other)]),
            [2]
        );
        assert!(lines(&[machine, ("crates/udp_proto/tests/it/c.rs", test)]).is_empty());
    }

    #[test]
    fn drivers_are_exempt_and_streams_are_not() {
        assert!(lines(&[("crates/servicer/src/udp.rs", ENDPOINT)]).is_empty());
        let machine = "impl Machine for NodeMachine {}";
        assert!(lines(&[("crates/daemon/src/relay/machine.rs", machine)]).is_empty());
        assert_eq!(lines(&[("crates/hub/src/machine.rs", machine)]), [1]);
        let hub = "impl StreamMachine\n    for hub::Node {}";
        assert_eq!(lines(&[("crates/hub/src/node.rs", hub)]), [1]);
    }
}
