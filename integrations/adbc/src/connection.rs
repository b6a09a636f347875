//! Connections: what the server has, and parts of result sets.

use std::collections::HashSet;
use std::sync::Arc;

use adbc_core::error::{Error, Result};
use adbc_core::options::{InfoCode, IsolationLevel, ObjectDepth, OptionConnection, OptionValue};
use adbc_core::{CancelHandle, Optionable};
use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::Schema;
use dipc::Client;

use crate::error::{invalid_state, not_found, not_implemented};
use crate::info;
use crate::objects::{Objects, TABLE};
use crate::partition::Partition;
use crate::results::{ResultSet, one};
use crate::running::Running;
use crate::session::Session;
use crate::settings::Settings;
use crate::statement::Statement;
use crate::values::{bytes_of, flag, parsed, text};

/// The options of requests to one server, for statements. It connects only with the first request.
pub struct Connection {
    session: Session,
    running: Running,
}

impl Connection {
    pub(crate) fn new(client: Client, uri: String, settings: Settings) -> Self {
        let session = Session {
            client,
            uri,
            settings,
            is_read_only: false,
        };
        Self {
            session,
            running: Running::default(),
        }
    }

    fn option(&self, option: &OptionConnection) -> Result<&[u8]> {
        match option {
            OptionConnection::AutoCommit => Ok(b"true"),
            OptionConnection::ReadOnly => Ok(match self.session.is_read_only {
                true => b"true",
                false => b"false",
            }),
            OptionConnection::IsolationLevel => {
                Ok(adbc_core::constants::ADBC_OPTION_ISOLATION_LEVEL_DEFAULT.as_bytes())
            }
            OptionConnection::CurrentCatalog | OptionConnection::CurrentSchema => {
                Err(not_found(no_catalogs().message))
            }
            _ => self.session.settings.get(option.as_ref()),
        }
    }
}

impl adbc_core::Connection for Connection {
    type StatementType = Statement;

    fn new_statement(&mut self) -> Result<Statement> {
        Ok(Statement::new(self.session.clone()))
    }

    fn get_cancel_handle(&self) -> Box<dyn CancelHandle> {
        Box::new(self.running.clone())
    }

    fn get_info(&self, codes: Option<HashSet<InfoCode>>) -> Result<ResultSet> {
        info::result_set(codes.as_ref())
    }

    fn get_objects(
        &self,
        depth: ObjectDepth,
        catalog: Option<&str>,
        db_schema: Option<&str>,
        table_name: Option<&str>,
        table_type: Option<Vec<&str>>,
        column_name: Option<&str>,
    ) -> Result<ResultSet> {
        let token = self.running.begin()?;
        let wanted = Objects {
            depth,
            catalog,
            db_schema,
            table_name,
            table_type: table_type.as_deref(),
            column_name,
        };
        wanted.result_set(&self.session, token)
    }

    fn get_table_schema(
        &self,
        catalog: Option<&str>,
        db_schema: Option<&str>,
        table_name: &str,
    ) -> Result<Schema> {
        if [catalog, db_schema]
            .iter()
            .flatten()
            .any(|it| !it.is_empty())
        {
            return Err(not_found(no_catalogs().message));
        }
        let token = self.running.begin()?;
        let described = self.session.describe(table_name.as_bytes(), &token)?;
        let schema = (self.session).schema(table_name.as_bytes(), described.as_ref(), &token)?;
        Ok(schema.as_ref().clone())
    }

    fn get_table_types(&self) -> Result<ResultSet> {
        let types = StringArray::from_iter_values([TABLE]);
        let schema = adbc_core::schemas::GET_TABLE_TYPES_SCHEMA.clone();
        Ok(one(RecordBatch::try_new(schema, vec![Arc::new(types)])?))
    }

    fn get_statistic_names(&self) -> Result<ResultSet> {
        Err(no_statistics())
    }

    fn get_statistics(
        &self,
        _: Option<&str>,
        _: Option<&str>,
        _: Option<&str>,
        _: bool,
    ) -> Result<ResultSet> {
        Err(no_statistics())
    }

    fn commit(&mut self) -> Result<()> {
        Err(no_transaction())
    }

    fn rollback(&mut self) -> Result<()> {
        Err(no_transaction())
    }

    fn read_partition(&self, partition: impl AsRef<[u8]>) -> Result<ResultSet> {
        let partition = Partition::decode(partition.as_ref())?;
        self.session.read(&partition, self.running.begin()?)
    }
}

impl Optionable for Connection {
    type Option = OptionConnection;

    fn set_option(&mut self, option: OptionConnection, value: OptionValue) -> Result<()> {
        let name = option.as_ref();
        match &option {
            OptionConnection::AutoCommit => match flag(name, &bytes_of(value)?)? {
                true => Ok(()),
                false => Err(not_implemented("libdipc has no transactions")),
            },
            OptionConnection::ReadOnly => {
                self.session.is_read_only = flag(name, &bytes_of(value)?)?;
                Ok(())
            }
            OptionConnection::IsolationLevel => {
                let default = String::from(IsolationLevel::Default);
                match bytes_of(value)? == default.as_bytes() {
                    true => Ok(()),
                    false => Err(not_implemented(
                        "libdipc has no transactions, so it has no isolation levels",
                    )),
                }
            }
            OptionConnection::CurrentCatalog | OptionConnection::CurrentSchema => {
                Err(no_catalogs())
            }
            _ => self.session.settings.set(name, value),
        }
    }

    fn get_option_string(&self, option: OptionConnection) -> Result<String> {
        Ok(text(option.as_ref(), self.option(&option)?)?.to_owned())
    }

    fn get_option_bytes(&self, option: OptionConnection) -> Result<Vec<u8>> {
        Ok(self.option(&option)?.to_vec())
    }

    fn get_option_int(&self, option: OptionConnection) -> Result<i64> {
        parsed(option.as_ref(), self.option(&option)?)
    }

    fn get_option_double(&self, option: OptionConnection) -> Result<f64> {
        parsed(option.as_ref(), self.option(&option)?)
    }
}

fn no_catalogs() -> Error {
    not_implemented("a server of libdipc has no catalogs and no schemas of databases")
}

fn no_statistics() -> Error {
    not_implemented("libdipc has no statistics; get_objects lists the tables")
}

fn no_transaction() -> Error {
    invalid_state("nothing to commit or roll back: libdipc has no transactions")
}
