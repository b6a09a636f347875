use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use dipc::{
    AsyncReader, Client, Error, GetOptions, Headers, Put, PutOptions, Reader, Result, Status, Uris,
};
use dipc_sandbox::service::{ARGUMENTS, Ask, Call, HEADER, NEEDS};

use crate::Module;

/// A function of a module, with arguments, on its way to a server.
///
/// A message can be sent any number of times, to any servers. Where a server lacks the module, the
/// message sends it and asks again, once. Options that have headers of their own go by
/// [`headers`](Self::headers).
#[derive(Clone, Debug)]
pub struct Message {
    module: Module,
    call: Call,
    headers: Headers,
    /// Of the put of the module.
    sending: PutOptions,
}

impl Message {
    /// A call of `function`. Its module says what the arguments mean; together with the other
    /// headers of the request they have at most 64 KiB.
    pub fn new(module: &Module, function: &str, arguments: &[u8]) -> Self {
        Self {
            module: module.clone(),
            call: Call {
                module: module.hash(),
                function: function.to_owned(),
                arguments: arguments.to_vec(),
            },
            headers: Headers::new(),
            sending: PutOptions::new(),
        }
    }

    /// Adds headers to the requests: a token for the server's authorizer, for example.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sends the module, where a server lacks it, with these options.
    pub(crate) fn sending_module_by(mut self, options: PutOptions) -> Self {
        self.sending = options;
        self
    }

    /// Gets what the function makes of the server's table `ticket`.
    ///
    /// # Errors
    ///
    /// `Permission`: the server does not allow it. `Provider`: the function failed, with its text.
    /// `OutOfResources`: it reached a bound. `Unsupported`: the server runs no functions.
    /// Those of [`Client::get`](dipc::Client::get), and of [`Module::send`].
    pub fn get(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
    ) -> Result<Reader> {
        self.get_with(client, uris, ticket, &GetOptions::new())
    }

    /// [`get`](Self::get) with options. Columns and rows are those of the function's output. Headers
    /// of the options are replaced by the message's.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn get_with(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Reader> {
        let (uris, ticket) = (uris.into(), ticket.as_ref());
        let options = options
            .clone()
            .headers(self.asking(&Ask::Call(self.call.clone()))?);
        self.sending(client, &uris, || {
            client.get_with(uris.clone(), ticket, &options)
        })
    }

    /// [`get_with`](Self::get_with) for asynchronous programs. The module's code, where the server
    /// lacks it, is sent by a blocking call.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn get_async(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<AsyncReader> {
        let (uris, ticket) = (uris.into(), ticket.as_ref());
        let options = options
            .clone()
            .headers(self.asking(&Ask::Call(self.call.clone()))?);
        match client.get_async_with(uris.clone(), ticket, &options).await {
            Err(error) if error.status() == Status::NotFound => {
                self.send_module(client, &uris)?;
                client.get_async_with(uris, ticket, &options).await
            }
            got => got,
        }
    }

    /// Puts a table, which goes through the function before the server's host has it. Returns the
    /// number of batches that were sent.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), and those of [`Client::put`](dipc::Client::put).
    pub fn put(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        table: impl IntoIterator<Item = RecordBatch>,
        schema: &SchemaRef,
    ) -> Result<u64> {
        let mut put = self.start_put(client, uris, descriptor, schema, &PutOptions::new())?;
        for batch in table {
            put.push(batch)?;
        }
        put.finish()
    }

    /// Begins a put. [`Put::push`](dipc::Put::push) sends the batches.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn start_put(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        schema: &SchemaRef,
        options: &PutOptions,
    ) -> Result<Put> {
        let (uris, descriptor) = (uris.into(), descriptor.as_ref());
        let options = options
            .clone()
            .headers(self.asking(&Ask::Call(self.call.clone()))?);
        self.sending(client, &uris, || {
            client.start_put(uris.clone(), descriptor, schema, &options)
        })
    }

    /// Begins an exchange: the function answers each batch as it comes.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), and those of [`Client::exchange`](dipc::Client::exchange).
    pub fn exchange(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        schema: &SchemaRef,
        options: (&PutOptions, &GetOptions),
    ) -> Result<(Put, Reader)> {
        let uris = uris.into();
        let put = (options.0.clone()).headers(self.asking(&Ask::Call(self.call.clone()))?);
        self.sending(client, &uris, || {
            client.exchange(uris.clone(), b"", schema, (&put, options.1))
        })
    }

    /// Runs the function alone, and gives the batches that it puts out.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn run(&self, client: &Client, uris: impl Into<Uris>) -> Result<Reader> {
        self.run_with(client, uris, &GetOptions::new())
    }

    pub(crate) fn run_with(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        options: &GetOptions,
    ) -> Result<Reader> {
        let uris = uris.into();
        let headers = self.asking(&Ask::Alone(self.call.clone()))?;
        let options = options.clone().headers(headers);
        self.sending(client, &uris, || {
            client.get_with(uris.clone(), b"", &options)
        })
    }

    /// Runs the function alone, and gives the bytes that it puts out, one after another.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `InvalidData`: the function puts out batches.
    pub fn call(&self, client: &Client, uris: impl Into<Uris>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut reader = self.run(client, uris)?;
        let schema = reader.schema();
        if schema.fields().len() != 1 || *schema.field(0).data_type() != DataType::Binary {
            return Err(Error::new(
                Status::InvalidData,
                "the function puts out batches, not bytes: use Message::run",
            ));
        }
        while let Some(batch) = reader.next_batch()? {
            let values = batch.column(0).as_binary::<i32>();
            bytes.extend(values.iter().flatten().flatten());
        }
        Ok(bytes)
    }

    /// The headers of a request.
    fn asking(&self, ask: &Ask) -> Result<Headers> {
        let mut headers = self.headers.clone();
        headers.add(NEEDS, HEADER)?;
        headers.add(HEADER, ask.header())?;
        if !self.call.arguments.is_empty() {
            headers.add(ARGUMENTS, self.call.arguments.clone())?;
        }
        Ok(headers)
    }

    fn send_module(&self, client: &Client, uris: &Uris) -> Result<()> {
        (self.module).send(client, uris.clone(), &self.sending, &self.headers)
    }

    /// Sends, and sends the module first where the server may lack it. A server that says
    /// `NotFound` lacks the module or the table: then the second answer tells.
    fn sending<T>(&self, client: &Client, uris: &Uris, send: impl Fn() -> Result<T>) -> Result<T> {
        match send() {
            Err(error) if error.status() == Status::NotFound => {
                self.send_module(client, uris)?;
                send()
            }
            sent => sent,
        }
    }
}
