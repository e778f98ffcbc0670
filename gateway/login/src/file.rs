//! Files with secrets. They are read again for each token, so a file that is rotated needs no restart.

use crate::{Error, token::TOKEN_BYTES_MAX};
use std::{fmt, fs::File, io::Read as _};

/// The longest file of authorities: a Secret has at most 1 MiB.
const AUTHORITIES_BYTES_MAX: usize = 1 << 20;

/// What is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A token for brokers.
    Token,
    ClientId,
    ClientSecret,
    /// A token for a token endpoint.
    ClientAssertion,
    Authorities,
    AccessKeyId,
    SecretAccessKey,
    SessionToken,
    /// A token for AWS STS.
    StsToken,
    /// A token for the agent of EKS Pod Identity.
    AgentToken,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "token",
            Self::ClientId => "client id",
            Self::ClientSecret => "client secret",
            Self::ClientAssertion => "client assertion",
            Self::Authorities => "authorities",
            Self::AccessKeyId => "access key id",
            Self::SecretAccessKey => "secret access key",
            Self::SessionToken => "session token",
            Self::StsToken => "token for AWS STS",
            Self::AgentToken => "token for the EKS Pod Identity agent",
        })
    }
}

/// The text of a file, without the one line end that an editor leaves.
///
/// # Errors
/// [`Error::File`], which names the file and never its content.
pub fn read(what: Content, path: &str) -> Result<String, Error> {
    read_up_to(TOKEN_BYTES_MAX, what, path)
}

/// The same for certificates of authorities: a bundle has hundreds.
///
/// # Errors
/// [`Error::File`].
pub fn read_long(what: Content, path: &str) -> Result<String, Error> {
    read_up_to(AUTHORITIES_BYTES_MAX, what, path)
}

fn read_up_to(bytes_max: usize, what: Content, path: &str) -> Result<String, Error> {
    let failed = |reason: String| Error::File { what, path: path.to_owned(), reason };
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut text = String::new();
    file.take(most.saturating_add(1)).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() > bytes_max {
        return Err(failed(format!("it has more than {bytes_max} bytes")));
    }
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_bound_and_named_when_it_cannot_be() {
        let path = std::env::temp_dir().join(format!("sluice-login-file-{}", std::process::id()));
        let text = path.to_str().unwrap();
        std::fs::write(&path, "s3cret\r\n").unwrap();
        assert_eq!(read(Content::ClientSecret, text).unwrap(), "s3cret");
        std::fs::write(&path, "x".repeat(TOKEN_BYTES_MAX + 1)).unwrap();
        let said = read(Content::ClientSecret, text).unwrap_err().to_string();
        assert!(said.contains("more than 65536 bytes") && said.contains(text), "{said}");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(Content::ClientSecret, text).is_err());
        std::fs::remove_file(&path).unwrap();
        let said = read(Content::ClientSecret, text).unwrap_err().to_string();
        assert!(said.contains("cannot read the client secret from"), "{said}");
    }
}
