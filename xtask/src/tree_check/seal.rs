//! Checks that an AEAD seals only inside the key types of `crypto`, which never reuse a nonce.

use crate::source::{line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Files outside `crypto` that may call a method named `seal`. There it belongs to a key type that
/// counts its nonces or is consumed by one use; in netsim it belongs to a wrapped provider.
const ALLOWED: [&str; 9] = [
    "crates/matchmaker_core/src/mint.rs",
    "crates/netsim/src/provider.rs",
    "crates/relay_mesh/src/data_plane.rs",
    "crates/relay_mesh/src/flow_key.rs",
    "crates/relay_mesh/src/hop_seal.rs",
    "crates/relay_mesh/src/node/flows.rs",
    "crates/relay_mesh/src/node/probe_flow.rs",
    "crates/udp_proto/src/handshake/half_open.rs",
    "crates/udp_proto/src/session/send.rs",
];

/// Finds calls of `seal` outside `crypto` and the allowed files.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    check_with(view, &ALLOWED)
}

fn check_with(view: &View<'_>, allowed: &[&str]) -> Vec<Finding> {
    view.sources
        .iter()
        .filter(|source| crate_of(source.path).is_some_and(|name| name != "crypto"))
        .filter(|source| !allowed.contains(&source.path))
        .flat_map(|source| {
            [".seal(", "Aead::seal"]
                .into_iter()
                .flat_map(|call| words(&source.shipped, call))
                .map(|offset| {
                    Finding::at(
                        source.path,
                        line_of(&source.shipped, offset),
                        "seals outside the key types of crypto; if a key type counts its nonces \
                         here, add the file to the list in xtask",
                    )
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    #[test]
    fn finds_calls_outside_crypto() {
        let call = "fn a() {\n    aead.seal(nonce, aad, body, tag);\n    Aead::seal(&aead);\n}";
        let workspace = Workspace::of(&[
            ("crates/crypto/src/key.rs", call),
            ("crates/udp_proto/src/packet.rs", call),
            ("crates/udp_proto/tests/it/vectors.rs", call),
            ("crates/udp_proto/src/key.rs", call),
            (
                "crates/udp_proto/src/other.rs",
                "fn seal() { a.seal_label(); } // b.seal(c)",
            ),
        ]);
        let findings = check_with(&workspace.view(), &["crates/udp_proto/src/key.rs"]);
        let lines: Vec<_> = findings
            .iter()
            .map(|it| (it.path.as_str(), it.line))
            .collect();
        let path = "crates/udp_proto/src/packet.rs";
        assert_eq!(lines, [(path, 2), (path, 3)]);
    }
}
