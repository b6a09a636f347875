# Runs the Homebrew formula with a stand-in for Homebrew's classes: installs the sources of this
# folder into PREFIX and runs the formula's test.
#
#   ruby formula.rb FORMULA [PREFIX]        without PREFIX: reads it only
require "pathname"
require "tmpdir"

class Formula
  FIELDS = %i[desc homepage url sha256 license].freeze

  class << self
    attr_reader :values, :dependencies, :check

    def inherited(formula)
      super
      formula.instance_variable_set(:@values, {})
      formula.instance_variable_set(:@dependencies, [])
      (@formulas ||= []) << formula
    end

    attr_reader :formulas

    FIELDS.each { |field| define_method(field) { |value| @values[field] = value } }

    def head(url, branch:)
      @values[:head] = "#{url} #{branch}"
    end

    def depends_on(what)
      @dependencies << what
    end

    def test(&block)
      @check = block
    end
  end

  attr_reader :prefix, :testpath

  def initialize(prefix, testpath)
    @prefix = Pathname(prefix)
    @testpath = Pathname(testpath)
  end

  def version
    self.class.values[:url][%r{/v([0-9.]+)/}, 1]
  end

  %i[bin include lib].each { |folder| define_method(folder) { prefix/folder.to_s } }

  def std_cmake_args
    ["-DCMAKE_INSTALL_PREFIX=#{prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_BUILD_TYPE=Release",
     "-DDIPC_CARGO_TARGET_DIR=#{ENV.fetch("CARGO_TARGET_DIR")}"]
  end

  def system(*command)
    Kernel.system(*command.map(&:to_s), exception: true)
  end

  def shell_output(command)
    output = `#{command}`
    raise "#{command} fails" unless $?.success?

    output
  end

  def assert_equal(expected, found)
    raise "#{found} is not #{expected}" unless expected == found
  end

  def assert_match(expected, found)
    raise "#{found} has no #{expected}" unless found.include?(expected)
  end
end

def ENV.cc
  "cc"
end

load ARGV.fetch(0)
formula = Formula.formulas.first
missing = Formula::FIELDS - formula.values.keys
raise "the formula has no #{missing.join(", ")}" unless missing.empty?
# What `brew audit` asks of a description.
desc = formula.values[:desc]
raise "the description is too long, or begins with an article" if desc.length > 80 || desc =~ /\A(An?|The) /
raise "the archive is not named by the version" unless formula.values[:url].end_with?("-#{formula.new("/", "/").version}.tar.gz")

if (prefix = ARGV[1])
  Dir.mktmpdir do |folder|
    made = formula.new(prefix, folder)
    made.install
    ENV["LD_LIBRARY_PATH"] = made.lib.to_s
    Dir.chdir(folder) { made.instance_eval(&formula.check) }
  end
end
puts "homebrew: #{formula} #{formula.new("/", "/").version}"
