//! The driver, and databases: which server, and how to reach it.

use std::collections::BTreeMap;

use adbc_core::Optionable;
use adbc_core::error::{Error, Result};
use adbc_core::options::{OptionConnection, OptionDatabase, OptionValue};
use dipc::{Client, ClientBuilder};

use crate::connection::Connection;
use crate::error::{OrAdbc as _, invalid, invalid_state, not_found, not_implemented};
use crate::settings::{SETTING, Settings, is_of_databases};
use crate::values::{bytes_of, file, flag, number, parsed, text, time};

const CERTIFICATE: &str = "dipc.tls.certificate";
const KEY: &str = "dipc.tls.key";

/// The driver.
#[derive(Debug, Default)]
pub struct Driver;

/// A server, and the idle connections to it, which all connections of ADBC share.
pub struct Database {
    client: Client,
    uri: String,
    /// What the client was made with, by name.
    made_with: BTreeMap<String, Vec<u8>>,
    settings: Settings,
}

impl adbc_core::Driver for Driver {
    type DatabaseType = Database;

    fn new_database(&mut self) -> Result<Database> {
        self.new_database_with_opts([])
    }

    fn new_database_with_opts(
        &mut self,
        options: impl IntoIterator<Item = (OptionDatabase, OptionValue)>,
    ) -> Result<Database> {
        let mut uri = None;
        let mut made_with = BTreeMap::new();
        let mut settings = Settings::default();
        for (option, value) in options {
            let name = option.as_ref();
            match &option {
                OptionDatabase::Uri => uri = Some(bytes_of(value)?),
                OptionDatabase::Username | OptionDatabase::Password => return Err(no_passwords()),
                _ if is_of_databases(name) => {
                    made_with.insert(name.to_owned(), bytes_of(value)?);
                }
                _ => settings.set(name, value)?,
            }
        }
        let uri = uri.ok_or_else(|| {
            invalid("the option \"uri\" is missing: the address that the server printed")
        })?;
        Ok(Database {
            client: client(&made_with)?,
            uri: text("uri", &uri)?.to_owned(),
            made_with,
            settings,
        })
    }
}

impl Database {
    fn option(&self, option: &OptionDatabase) -> Result<&[u8]> {
        match option {
            OptionDatabase::Uri => Ok(self.uri.as_bytes()),
            OptionDatabase::Username | OptionDatabase::Password => {
                Err(not_found(no_passwords().message))
            }
            _ => match self.made_with.get(option.as_ref()) {
                Some(value) => Ok(value),
                None => self.settings.get(option.as_ref()),
            },
        }
    }
}

impl adbc_core::Database for Database {
    type ConnectionType = Connection;

    fn new_connection(&self) -> Result<Connection> {
        self.new_connection_with_opts([])
    }

    fn new_connection_with_opts(
        &self,
        options: impl IntoIterator<Item = (OptionConnection, OptionValue)>,
    ) -> Result<Connection> {
        let (client, settings) = (self.client.clone(), self.settings.clone());
        let mut connection = Connection::new(client, self.uri.clone(), settings);
        for (option, value) in options {
            connection.set_option(option, value)?;
        }
        Ok(connection)
    }
}

impl Optionable for Database {
    type Option = OptionDatabase;

    fn set_option(&mut self, option: OptionDatabase, value: OptionValue) -> Result<()> {
        let name = option.as_ref();
        match &option {
            OptionDatabase::Username | OptionDatabase::Password => Err(no_passwords()),
            OptionDatabase::Uri => Err(too_late(name)),
            _ if is_of_databases(name) => Err(too_late(name)),
            _ => self.settings.set(name, value),
        }
    }

    fn get_option_string(&self, option: OptionDatabase) -> Result<String> {
        Ok(text(option.as_ref(), self.option(&option)?)?.to_owned())
    }

    fn get_option_bytes(&self, option: OptionDatabase) -> Result<Vec<u8>> {
        Ok(self.option(&option)?.to_vec())
    }

    fn get_option_int(&self, option: OptionDatabase) -> Result<i64> {
        parsed(option.as_ref(), self.option(&option)?)
    }

    fn get_option_double(&self, option: OptionDatabase) -> Result<f64> {
        parsed(option.as_ref(), self.option(&option)?)
    }
}

fn client(options: &BTreeMap<String, Vec<u8>>) -> Result<Client> {
    let mut client = Client::builder();
    for (name, value) in options {
        client = client_option(client, name, value)?;
    }
    client = match (options.get(CERTIFICATE), options.get(KEY)) {
        (Some(certificate), Some(key)) => {
            client.tls_identity(file(CERTIFICATE, certificate)?, file(KEY, key)?)
        }
        (None, None) => client,
        _ => return Err(invalid(format!("{CERTIFICATE} and {KEY} go together"))),
    };
    client.build().or_adbc()
}

fn client_option(client: ClientBuilder, name: &str, value: &[u8]) -> Result<ClientBuilder> {
    Ok(match name {
        "dipc.tls.ca" => client.tls_ca(file(name, value)?),
        "dipc.tls.server_name" => client.tls_server_name(text(name, value)?),
        "dipc.any_user" => client.any_user(flag(name, value)?),
        "dipc.idle_timeout" => client.idle_timeout(time(name, value)?),
        "dipc.max_idle" => client.max_idle(number(name, value, 0..=usize::MAX)?),
        _ => match name.strip_prefix(SETTING) {
            Some(setting) => client.setting(setting, text(name, value)?).or_adbc()?,
            None => client,
        },
    })
}

fn too_late(name: &str) -> Error {
    invalid_state(format!(
        "{name} cannot change in a database that is initialised: make another one"
    ))
}

fn no_passwords() -> Error {
    not_implemented(
        "libdipc has tokens (dipc.token) and certificates, so there are no options username and \
         password",
    )
}

#[cfg(test)]
mod tests {
    use crate::settings::OF_DATABASES;

    #[test]
    fn options_are_on_the_page() {
        for name in OF_DATABASES.into_iter().chain(["uri", "dipc.setting.NAME"]) {
            assert!(
                include_str!("lib.rs").contains(&format!("`{name}`")),
                "{name}"
            );
        }
    }
}
