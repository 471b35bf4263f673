//! `PureGamer`'s `config.json` of five fields as a node configuration.
//!
//! Such a node is entry, relay and exit at once, as it is there; the games' lists decide which. The
//! network secret, for which the format has no field, is a file in the data folder, which the node
//! derives from the admin's public key if it does not exist. As there, anyone who knows that key
//! can join; a secret of your own closes the network.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use relay_mesh::signed_config::{AdminKeys, NodeFile, PeerAddress};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{BootstrapNode, FileConfig, FileRole, FileSigned, SECRET};
use crate::exit::Failure;
use crate::relay::store::write_atomic;

/// The field that distinguishes the two formats.
#[derive(Deserialize)]
struct Kind {
    super_admin_pub_key: Option<IgnoredAny>,
}

/// Returns whether a file has the five fields, valid or not.
pub(super) fn is_seed(text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(text);
    serde_json::from_slice::<Kind>(text).is_ok_and(|kind| kind.super_admin_pub_key.is_some())
}

/// Reads the five fields, and creates the data folder and its secret if they do not exist.
pub(super) fn read(path: &Path, text: &[u8]) -> Result<FileConfig, Failure> {
    let file = NodeFile::read(text).map_err(|error| Failure::file(path, error))?;
    let nodes = file.bootstrap_nodes.iter().map(node);
    let bootstrap: Vec<BootstrapNode> = nodes
        .collect::<Result<_, _>>()
        .map_err(|fault| Failure::file(path, fault))?;
    let admin = file.super_admin_pub_key;
    let admins = AdminKeys::new([admin], 1).map_err(|error| Failure::file(path, error))?;
    let data = Path::new(&file.data_path);
    let folder = path.parent().unwrap_or_else(|| Path::new("")).join(data);
    let secret = admin.node_id().to_string();
    make_data(&folder, &secret).map_err(|error| Failure::file(&folder, error))?;
    let ip = own_ip(bootstrap.first().map(|known| known.address));
    Ok(FileConfig {
        roles: [FileRole::Entry, FileRole::Relay, FileRole::Exit].into(),
        bootstrap,
        signed: Some(FileSigned {
            network: NETWORK.to_owned(),
            admins,
            store: file.config_path.into(),
            minimum: None,
            listen: vec![ip],
        }),
        ..FileConfig::new(
            "node",
            data.join("node.pem"),
            SocketAddr::new(ip, file.port),
        )
    })
}

fn node(known: &PeerAddress) -> Result<BootstrapNode, String> {
    let name = known.peer.clone().try_into().map_err(|_| {
        format!(
            "bootstrap node {:?} is named as by libp2p; here the id of a node is 64 hexadecimal \
             digits, which it prints as it starts",
            known.peer
        )
    });
    Ok(BootstrapNode {
        node: name?,
        address: known.address,
    })
}

fn make_data(folder: &Path, secret: &str) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let path = folder.join(SECRET);
    if fs::exists(&path)? {
        return Ok(());
    }
    // Atomic: with half a secret no start would succeed again.
    write_atomic(&path, secret.as_bytes())
}

/// The local address of a route to `remote`, or to a documentation address; nothing is sent.
fn own_ip(remote: Option<SocketAddr>) -> IpAddr {
    let remote = remote.unwrap_or(SOMEBODY);
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let chosen = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(remote)?;
        socket.local_addr()
    });
    // A host without a route uses loopback.
    chosen.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

const NETWORK: &str = "PureGamerNetwork-0";
const SOMEBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg1_a_failed_write_of_the_secret_is_repeated_at_the_next_start() {
        let name = format!("tickwire-seed-secret-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // The draft's name is a folder, so opening it fails for every user.
        let draft = folder.join("secret.new");
        fs::create_dir_all(&draft).unwrap();
        assert!(make_data(&folder, "of the admin").is_err());
        let secret = folder.join(SECRET);
        assert!(!fs::exists(&secret).unwrap());
        fs::remove_dir(&draft).unwrap();
        for made in ["of the admin", "another"] {
            make_data(&folder, made).unwrap();
            assert_eq!(fs::read_to_string(&secret).unwrap(), "of the admin");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
