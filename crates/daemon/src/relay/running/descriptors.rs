//! Limits of sockets by the process's limit of open files.

use std::fs;

use relay_mesh::Config;
use relay_mesh::link_state::Roles;

use super::Setup;
use crate::relay::TcpSetup;

/// Lowers the limits of flows and TCP connections so that the node rejects them before the system
/// does. Each flow of an exit and each TCP connection needs a descriptor.
pub(super) fn limit_to_descriptors(setup: &mut Setup) {
    if let Some(files) = descriptor_limit() {
        limit_to(files, &mut setup.node, &mut setup.tcp);
    }
}

fn limit_to(files: u32, node: &mut Config, tcp: &mut TcpSetup) {
    let mut available = files.saturating_sub(reserved_of(files));
    if let Some(shared) = &mut node.tcp {
        tcp.connections_max = tcp.connections_max.min(available / 2);
        // The node shares out the same number.
        shared.connections_max = tcp.connections_max;
        available = available.saturating_sub(tcp.connections_max);
    }
    if may_be_exit(node) {
        node.flows_max = node.flows_max.min(available);
    }
}

/// Whether flows may need sockets: the node serves games, or a signed document may add some later.
fn may_be_exit(node: &Config) -> bool {
    let is_exit = node.profile.roles.contains(Roles::EXIT);
    (node.signed.is_some() && is_exit) || node.games.iter().any(|game| game.exit.is_some())
}

/// Descriptors reserved for other uses: [`RESERVED_FILES`], but at most a quarter of `files`.
fn reserved_of(files: u32) -> u32 {
    RESERVED_FILES.min(files / 4)
}

/// The process's soft limit of open files; `None` if it is unknown.
fn descriptor_limit() -> Option<u32> {
    parse_limit(&fs::read_to_string("/proc/self/limits").ok()?)
}

/// Parses the soft limit from `/proc/self/limits`; `None` for "unlimited".
fn parse_limit(limits: &str) -> Option<u32> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    line?.split_whitespace().next()?.parse().ok()
}

/// Descriptors that are not flows: ports of 190 games, which a document may add at run time, 32
/// server probes, 32 for 8 shards (socket, poll, waker), and 34 for log, store and admin
/// connections.
const RESERVED_FILES: u32 = 288;

#[cfg(test)]
mod tests {
    use crypto::{Identity, Ring, Secret32};
    use relay_mesh::signed_config::{AdminKeys, Holder};
    use relay_mesh::{ExitGame, Game, Mode, Signed};
    use wire::InstanceId;

    use super::*;
    use crate::relay::FileRole;
    use crate::relay::sandbox::Sandbox;

    /// Flow limit of a node whose process may open 1,024 files.
    fn flows(roles: Roles, change: impl FnOnce(&mut Config)) -> u32 {
        let mut node = Config::new(Secret32::new([0; 32]), InstanceId(0));
        node.profile.roles = roles;
        change(&mut node);
        limit_to(1_024, &mut node, &mut TcpSetup::default());
        node.flows_max
    }

    #[test]
    fn an_exit_has_no_more_flows_than_open_files() {
        let with_game = |node: &mut Config| {
            node.games.push(Game {
                name: "echo".to_owned(),
                mode: Mode::Single,
                entry: None,
                exit: Some(ExitGame {
                    server: ([127, 0, 0, 1], 9).into(),
                    entries: None,
                    header: None,
                }),
            });
        };
        let by_documents = |node: &mut Config| {
            let admin = Identity::generate(&mut Ring::new()).unwrap();
            let keys = AdminKeys::new([*admin.public_key()], 1).unwrap();
            node.signed = Some(Signed {
                holder: Holder::new("east-1", keys),
                listen: Vec::new(),
            });
        };
        assert_eq!(flows(Roles::EXIT, with_game), 768);
        assert_eq!(flows(Roles::EXIT, by_documents), 768);
        assert_eq!(flows(Roles::ENTRY, by_documents), 16_384);
        assert_eq!(flows(Roles::EXIT, |_| {}), 16_384);
    }

    #[test]
    fn the_limit_of_open_files_is_parsed() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max processes             63704                63704                processes \n\
                     Max open files            1024                 524288               files     \n";
        assert_eq!(parse_limit(table), Some(1_024));
        assert_eq!(parse_limit(&table.replace("1024", "unlimited")), None);
        assert_eq!(parse_limit(""), None);
        #[cfg(target_os = "linux")]
        assert!(descriptor_limit().is_some_and(|files| files > RESERVED_FILES));
    }

    #[test]
    fn few_open_files_leave_few_shared_connections() {
        let mut sandbox = Sandbox::new(&[("one", FileRole::Exit)]).unwrap();
        let config = sandbox.config_mut(0).unwrap();
        let text = r#"[{"name": "web", "protocol": "tcp", "server": "127.0.0.1:80"}]"#;
        config.games = serde_json::from_str(text).unwrap();
        let config = config.clone();
        let mut setup = config.setup(sandbox.directory()).unwrap();
        for (files, connections) in [(524_288, 1_024), (1_024, 384)] {
            limit_to(files, &mut setup.node, &mut setup.tcp);
            let shared = setup.node.tcp.as_ref().map(|tcp| tcp.connections_max);
            assert_eq!(shared, Some(connections));
            assert_eq!(setup.tcp.connections_max, connections);
        }
    }

    #[test]
    fn ports_and_probes_of_190_games_fit_beside_the_flows() {
        let (games, probes, shards) = (190, 32, 32);
        for (files, flows) in [
            (524_288, 524_000),
            (1_152, 864),
            (1_024, 768),
            (256, 192),
            (0, 0),
        ] {
            let reserved = reserved_of(files);
            assert_eq!(files - reserved, flows);
            assert!(files < 1_152 || reserved > games + probes + shards);
        }
    }
}
