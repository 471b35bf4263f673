//! apt's list of package sources, in both of its formats.

use std::collections::BTreeMap;

/// A mirror with suites and components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// Keyring, or a key itself over several lines; else apt's trusted keys.
    signed_by: Option<String>,
}

impl Source {
    /// Whether any of its suites is of the release `codename`, such as `bookworm-updates`.
    pub(super) fn is_of_release(&self, codename: &str) -> bool {
        let mut releases = self
            .suites
            .iter()
            .filter_map(|suite| suite.split('-').next());
        releases.any(|release| release == codename || ALIASES.contains(&release))
    }

    /// Writes it as a paragraph of a `.sources` file.
    pub(super) fn paragraph(&self) -> String {
        let fields = [
            ("URIs", &self.uris),
            ("Suites", &self.suites),
            ("Components", &self.components),
        ];
        let mut lines = vec!["Types: deb".to_owned()];
        lines.extend(fields.map(|(name, words)| format!("{name}: {}", words.join(" "))));
        let signed_by = self.signed_by.iter();
        lines.extend(signed_by.map(|signed_by| format!("Signed-By: {signed_by}")));
        lines.push(String::new());
        lines.join("\n")
    }
}

/// Names of Debian's suites that move from release to release.
const ALIASES: [&str; 5] = ["oldstable", "stable", "testing", "unstable", "sid"];

/// Returns the mirrors in `own` that carry a whole release, for another suite.
pub(super) fn of_suite(own: &[Source], suite: &str) -> Vec<Source> {
    let is_whole = |source: &&Source| source.suites.iter().any(|it| !it.contains(['-', '/']));
    let whole = own.iter().filter(is_whole).map(|source| Source {
        suites: vec![suite.to_owned()],
        ..source.clone()
    });
    let mut sources: Vec<Source> = Vec::new();
    for source in whole {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// Parses a file of one-line entries, `deb [signed-by=/key.gpg] URI SUITE COMPONENT...`.
pub(super) fn parse_list(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or("").trim();
    let rest = line.strip_prefix("deb")?;
    // Not `deb-src`.
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let signed_by = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix("signed-by="));
    let mut words = rest.split_whitespace().map(str::to_owned);
    let source = Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by: signed_by.map(str::to_owned),
    };
    source.is_complete().then_some(source)
}

/// Parses a file of paragraphs with fields (`man 5 sources.list`, deb822 style).
pub(super) fn parse_paragraphs(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut fields = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(parse_fields(&std::mem::take(&mut fields)));
        } else if line.starts_with([' ', '\t']) {
            let value: &mut String = fields.entry(last.clone()).or_default();
            value.push('\n');
            value.push_str(line);
        } else if let Some((name, value)) = line.split_once(':') {
            last = name.trim().to_lowercase();
            fields.insert(last.clone(), value.trim().to_owned());
        }
    }
    sources
}

fn parse_fields(fields: &BTreeMap<String, String>) -> Option<Source> {
    let words = |name: &str| -> Vec<String> {
        let value = fields.get(name).map_or("", String::as_str);
        value.split_whitespace().map(str::to_owned).collect()
    };
    let is_enabled = words("enabled").first().is_none_or(|it| it != "no");
    let has_programs = words("types").iter().any(|it| it == "deb");
    let source = Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: fields.get("signed-by").cloned(),
    };
    (is_enabled && has_programs && source.is_complete()).then_some(source)
}

impl Source {
    /// Whether it has all parts. A repository without suites has no components.
    const fn is_complete(&self) -> bool {
        !self.uris.is_empty() && !self.suites.is_empty() && !self.components.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn source(uri: &str, suites: &str, components: &str, signed_by: Option<&str>) -> Source {
        Source {
            uris: vec![uri.to_owned()],
            suites: words(suites),
            components: words(components),
            signed_by: signed_by.map(str::to_owned),
        }
    }

    #[test]
    fn one_line_entries_are_read() {
        let text = "# deb http://mirror.test/old buster main\n\
                    deb http://mirror.test/debian bookworm main contrib # all\n\
                    deb-src http://mirror.test/debian bookworm main\n\
                    deb [arch=amd64 signed-by=/k.gpg trusted=yes] http://a.test/x y-updates main\n\
                    deb http://flat.test/ ./\n\
                    deb [ http://broken.test x main\n\
                    debris\n";
        let expected = [
            source(
                "http://mirror.test/debian",
                "bookworm",
                "main contrib",
                None,
            ),
            source("http://a.test/x", "y-updates", "main", Some("/k.gpg")),
        ];
        assert_eq!(parse_list(text), expected);
    }

    #[test]
    fn paragraphs_are_read() {
        let text = "Types: deb\n# A comment.\nURIs: http://mirror.test/debian\n\
                    suites: bookworm bookworm-updates\nComponents: main\n\
                    Signed-By: /usr/share/keyrings/d.gpg\n\n\
                    Types: deb-src\nURIs: http://b.test\nSuites: bookworm\nComponents: main\n\n\n\
                    Types: deb deb-src\nURIs: http://c.test\nSuites: bookworm-security\n\
                    Components: main\nSigned-By:\n -----BEGIN\n .\n key\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://d.test\nSuites: x\nComponents: main\n";
        let key = "\n -----BEGIN\n .\n key";
        let ring = "/usr/share/keyrings/d.gpg";
        let expected = [
            source(
                "http://mirror.test/debian",
                "bookworm bookworm-updates",
                "main",
                Some(ring),
            ),
            source("http://c.test", "bookworm-security", "main", Some(key)),
        ];
        let parsed = parse_paragraphs(text);
        assert_eq!(parsed, expected);
        // What is written is read alike.
        let written: Vec<String> = parsed.iter().map(Source::paragraph).collect();
        assert_eq!(parse_paragraphs(&written.join("\n")), expected);
    }

    #[test]
    fn a_newer_suite_is_looked_for_where_a_whole_release_is() {
        let own = [
            source(
                "http://m.test/debian",
                "bookworm bookworm-updates",
                "main",
                Some("/k"),
            ),
            source("http://m.test/security", "bookworm-security", "main", None),
            source("http://m.test/debian", "bookworm", "main", Some("/k")),
        ];
        let expected = source("http://m.test/debian", "trixie", "main", Some("/k"));
        assert_eq!(of_suite(&own, "trixie"), [expected]);
        assert!(own.iter().all(|it| it.is_of_release("bookworm")));
        let other = source("http://third.test", "nodistro", "main", None);
        assert!(!other.is_of_release("bookworm"));
        assert!(source("http://m.test", "stable", "main", None).is_of_release("bookworm"));
    }
}
