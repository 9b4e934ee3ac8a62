#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Installs, upgrades or removes the Drydock agent as a service of Windows.

.DESCRIPTION
Requires Python 3.10 or newer, installed for all users. Running the script again upgrades the agent. If a step fails, the
script restores the version that was installed before. Existing settings are kept.

.PARAMETER Server
Address of the Drydock backend.

.PARAMETER JoinTokenFile
File with the join token. Without it, the script asks for the token.

.PARAMETER NoJoinToken
Enrol by Azure's attested document or by admission, without a join token.

.PARAMETER Bundle
Folder of an unpacked bundle with wheels for Windows: nothing is downloaded.

.PARAMETER CaFile
PEM file with the certificates of a private authority, for the backend and for pip.

.PARAMETER Python
Path of python.exe. Without it, the launcher py chooses the newest version.

.PARAMETER Remove
Remove the service and the program. With -Purge also settings, state, hooks and logs.
#>
[CmdletBinding(DefaultParameterSetName = 'Install')]
param(
    [Parameter(ParameterSetName = 'Install')] [string] $Server = '@SERVER@',
    [Parameter(ParameterSetName = 'Install')] [string] $JoinTokenFile,
    [Parameter(ParameterSetName = 'Install')] [switch] $NoJoinToken,
    [Parameter(ParameterSetName = 'Install')] [string] $Bundle,
    [Parameter(ParameterSetName = 'Install')] [string] $CaFile,
    [Parameter(ParameterSetName = 'Install')] [string] $Python,
    [Parameter(ParameterSetName = 'Remove', Mandatory = $true)] [switch] $Remove,
    [Parameter(ParameterSetName = 'Remove')] [switch] $Purge
)

Set-StrictMode -Version 2.0
$ErrorActionPreference = 'Stop'

# The agent of the backend that served this script, as an argument of pip with its checksum.
$Package = '@PACKAGE@'
$ServiceName = 'DrydockAgent'
# What earlier releases installed.
$OldTask = 'Drydock agent'
$ProgramFolder = Join-Path $env:ProgramFiles 'Drydock Agent'
$Versions = Join-Path $ProgramFolder 'versions'
$DataFolder = Join-Path $env:ProgramData 'Drydock'
$SettingsFile = Join-Path $DataFolder 'agent.toml'
$CaStored = Join-Path $DataFolder 'ca.pem'
# SYSTEM, Administrators and TrustedInstaller, by their well-known ids: names are translated.
$System = 'S-1-5-18'
$Administrators = 'S-1-5-32-544'
$Trusted = @($System, $Administrators, 'S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464')

function Invoke-Program {
    param([string] $File, [string[]] $Arguments)
    & $File @Arguments | Out-Host
    if ($LASTEXITCODE -ne 0) {
        throw "$File $($Arguments -join ' ') ended with status $LASTEXITCODE."
    }
}

function Get-Agent {
    param([string] $Folder)
    Join-Path $Folder 'Scripts\drydock-agent.exe'
}

function Find-Python {
    $found = $Python
    if (-not $found) {
        $launcher = Get-Command -Name 'py.exe' -CommandType Application -ErrorAction SilentlyContinue | Select-Object -First 1
        if (-not $launcher) {
            throw 'Python 3.10 or newer is required, installed for all users. Name its python.exe with -Python.'
        }
        $found = & $launcher.Path -3 -c 'import sys; print(sys.executable)'
    }
    $isRecent = & $found -c 'import sys; print(sys.version_info >= (3, 10))'
    if ($isRecent -ne 'True') {
        throw "$found is not Python 3.10 or newer."
    }
    $found
}

function Test-Checksums {
    param([string] $Folder)
    foreach ($line in Get-Content -LiteralPath (Join-Path $Folder 'SHA256SUMS')) {
        $sum, $name = $line -split '\s+', 2
        $file = Join-Path $Folder $name.TrimStart('*')
        if ((Get-FileHash -LiteralPath $file -Algorithm SHA256).Hash -ne $sum) {
            throw "The checksum of $file is wrong."
        }
    }
}

function Confirm-Owner {
    # Any user may create folders in ProgramData, and files in folders there that are not protected.
    param([string] $Path)
    $owner = (Get-Acl -LiteralPath $Path).GetOwner([Security.Principal.SecurityIdentifier]).Value
    $isLink = (Get-Item -LiteralPath $Path -Force).Attributes -band [IO.FileAttributes]::ReparsePoint
    if ($isLink -or ($Trusted -notcontains $owner)) {
        throw "$Path is a link or belongs to $owner, who is no administrator. Check what it contains, and delete it."
    }
}

function New-OwnFolder {
    param([string] $Folder)
    New-Item -ItemType Directory -Path $Folder | Out-Null
    Invoke-Program 'icacls.exe' @($Folder, '/setowner', "*$Administrators", '/q')
}

function Protect-Data {
    if (Test-Path -LiteralPath $DataFolder) {
        Confirm-Owner $DataFolder
    }
    else {
        New-OwnFolder $DataFolder
    }
    $grants = @("*${System}:(OI)(CI)F", "*${Administrators}:(OI)(CI)F")
    Invoke-Program 'icacls.exe' @($DataFolder, '/inheritance:r', '/grant:r', $grants[0], $grants[1], '/q')
    if (Get-ChildItem -LiteralPath $DataFolder -Force) {
        Invoke-Program 'icacls.exe' @("$DataFolder\*", '/reset', '/t', '/q')
    }
    foreach ($name in 'Agent', 'Hooks', 'Hooks\prepare.d', 'Hooks\recover.d', 'Logs') {
        $folder = Join-Path $DataFolder $name
        if (Test-Path -LiteralPath $folder) {
            Confirm-Owner $folder
        }
        else {
            New-OwnFolder $folder
        }
    }
}

function Read-JoinToken {
    if ($NoJoinToken) {
        return ''
    }
    if ($JoinTokenFile) {
        $token = ([IO.File]::ReadAllText((Resolve-Path -LiteralPath $JoinTokenFile).ProviderPath)).Trim()
    }
    else {
        $secret = Read-Host -Prompt 'Join token' -AsSecureString
        $pointer = [Runtime.InteropServices.Marshal]::SecureStringToBSTR($secret)
        try {
            $token = [Runtime.InteropServices.Marshal]::PtrToStringBSTR($pointer).Trim()
        }
        finally {
            [Runtime.InteropServices.Marshal]::ZeroFreeBSTR($pointer)
        }
    }
    if ($token -notmatch '^[A-Za-z0-9_-]+$') {
        throw 'This is no join token: it consists of letters, digits, underscores and hyphens.'
    }
    $token
}

function Write-Settings {
    if ($CaFile) {
        Copy-Item -LiteralPath $CaFile -Destination $CaStored -Force
    }
    if (Test-Path -LiteralPath $SettingsFile) {
        Confirm-Owner $SettingsFile
        Write-Host "The settings in $SettingsFile are kept."
        return
    }
    if ($Server -notmatch '^https?://[^\s"\\]+$') {
        throw 'Name the address of the backend with -Server, such as https://drydock.example.org.'
    }
    $lines = @("fleet_url = ""$Server""")
    $token = Read-JoinToken
    if ($token) {
        $lines += "join_token = ""$token"""
    }
    if (Test-Path -LiteralPath $CaStored) {
        $lines += "ca_file = '$CaStored'"
    }
    # Without a byte order mark, which is not valid in TOML.
    [IO.File]::WriteAllText($SettingsFile, ($lines -join "`r`n") + "`r`n", (New-Object Text.UTF8Encoding $false))
}

function Install-Version {
    param([string] $Base, [string] $Folder)
    Invoke-Program $Base @('-m', 'venv', $Folder)
    $venv = Join-Path $Folder 'Scripts\python.exe'
    if (Test-Path -LiteralPath $CaStored) {
        # The package index may have a public certificate: pip trusts its own authorities, too.
        $both = Join-Path $Folder 'pip-ca.pem'
        @(& $venv -m pip._vendor.certifi --contents) + @(Get-Content -LiteralPath $CaStored) |
            Set-Content -LiteralPath $both -Encoding ascii
        Set-Content -LiteralPath (Join-Path $Folder 'pip.ini') -Encoding ascii -Value '[global]', "cert = $both"
    }
    $install = @('-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-input')
    if ($Bundle) {
        Push-Location -LiteralPath $Bundle
        try {
            Invoke-Program $venv ($install + @('--no-index', '--find-links', '.', '--require-hashes', '-r', 'drydock-agent.txt'))
        }
        finally {
            Pop-Location
        }
    }
    else {
        Invoke-Program $venv ($install + $Package)
    }
    Invoke-Program 'icacls.exe' @($Folder, '/setowner', "*$Administrators", '/t', '/q')
    Invoke-Program (Get-Agent $Folder) @('--version')
}

function Get-InstalledVersion {
    # The folder of the version that the service runs, or nothing.
    $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$ServiceName"
    if (Test-Path -LiteralPath $key) {
        $path = (Get-ItemProperty -LiteralPath $key).ImagePath
        if ($path -match ('"(' + [regex]::Escape($Versions) + '\\[0-9a-f]+)\\')) {
            return $Matches[1]
        }
    }
}

function Test-Running {
    $service = Get-Service -Name $ServiceName -ErrorAction SilentlyContinue
    [bool] ($service -and $service.Status -eq 'Running')
}

function Start-Agent {
    Start-Service -Name $ServiceName
    Start-Sleep -Seconds 5
    if (-not (Test-Running)) {
        throw "The service $ServiceName ended at once. The event log names the reason: source $ServiceName in Application."
    }
}

function Remove-OldVersions {
    param([string] $Current)
    # Event Viewer may keep a file of an old version open: the next upgrade deletes it.
    Get-ChildItem -LiteralPath $Versions -Directory | Where-Object { $_.FullName -ne $Current } |
        Remove-Item -Recurse -Force -ErrorAction SilentlyContinue
    foreach ($name in 'Include', 'Lib', 'Scripts', 'pyvenv.cfg', 'pip.ini', 'pip-ca.pem') {
        Remove-Item -LiteralPath (Join-Path $ProgramFolder $name) -Recurse -Force -ErrorAction SilentlyContinue
    }
}

function Install-Agent {
    if (-not $Bundle -and (Test-Path -LiteralPath (Join-Path $PSScriptRoot 'drydock-agent.txt'))) {
        $script:Bundle = $PSScriptRoot
    }
    if ($Bundle) {
        $script:Bundle = (Resolve-Path -LiteralPath $Bundle).ProviderPath
        Test-Checksums $Bundle
    }
    elseif ($Package -notmatch '#sha256=') {
        throw 'This script comes from a bundle: name the folder of the bundle with -Bundle.'
    }
    $base = Find-Python
    $previous = Get-InstalledVersion
    $wasRunning = Test-Running
    $task = Get-ScheduledTask -TaskName $OldTask -ErrorAction SilentlyContinue
    $hadSettings = Test-Path -LiteralPath $SettingsFile
    $folder = Join-Path $Versions ([Guid]::NewGuid().ToString('N').Substring(0, 12))
    $isChanged = $false
    try {
        Protect-Data
        Write-Settings
        Install-Version $base $folder
        $isChanged = $true
        if ($task) {
            Stop-ScheduledTask -TaskName $OldTask
            Disable-ScheduledTask -TaskName $OldTask | Out-Null
            Get-Process | Where-Object { $_.Path -like "$ProgramFolder\Scripts\*" } | Stop-Process -Force
        }
        if ($wasRunning) {
            Write-Host 'Waiting until running hooks have ended.'
            Stop-Service -Name $ServiceName
        }
        Invoke-Program (Get-Agent $folder) @('service', 'install')
        Start-Agent
    }
    catch {
        $reason = $_
        Write-Warning "The installation failed: $reason"
        try {
            if ($isChanged -and $previous) {
                Stop-Service -Name $ServiceName -ErrorAction SilentlyContinue
                Invoke-Program (Get-Agent $previous) @('service', 'install')
                if ($wasRunning) {
                    Start-Service -Name $ServiceName
                }
            }
            elseif ($isChanged) {
                Invoke-Program (Get-Agent $folder) @('service', 'remove')
            }
            if ($isChanged -and $task) {
                Enable-ScheduledTask -TaskName $OldTask | Out-Null
                Start-ScheduledTask -TaskName $OldTask
            }
            if (-not $hadSettings) {
                Remove-Item -LiteralPath $SettingsFile -Force -ErrorAction SilentlyContinue
            }
            Remove-Item -LiteralPath $folder -Recurse -Force -ErrorAction SilentlyContinue
            Write-Warning 'What was installed before is restored.'
        }
        catch {
            Write-Warning "What was installed before could not be restored: $_"
        }
        throw $reason
    }
    if ($task) {
        Unregister-ScheduledTask -TaskName $OldTask -Confirm:$false
    }
    $command = Join-Path $ProgramFolder 'drydock-agent.cmd'
    Set-Content -LiteralPath $command -Encoding ascii -Value "@""$(Get-Agent $folder)"" %*"
    Remove-OldVersions $folder
    Write-Host "The service $ServiceName runs. To check what it can reach: & '$command' check"
}

function Remove-Agent {
    $installed = Get-InstalledVersion
    if ($installed) {
        Invoke-Program (Get-Agent $installed) @('service', 'remove')
    }
    elseif (Get-Service -Name $ServiceName -ErrorAction SilentlyContinue) {
        throw "The service $ServiceName was not installed by this script."
    }
    if (Get-ScheduledTask -TaskName $OldTask -ErrorAction SilentlyContinue) {
        Stop-ScheduledTask -TaskName $OldTask
        Unregister-ScheduledTask -TaskName $OldTask -Confirm:$false
    }
    $folders = @($ProgramFolder)
    if ($Purge) {
        $folders += $DataFolder
    }
    foreach ($folder in $folders) {
        if (Test-Path -LiteralPath $folder) {
            Remove-Item -LiteralPath $folder -Recurse -Force
        }
    }
    Write-Host 'The agent is removed.'
}

if (-not [Environment]::Is64BitProcess) {
    throw 'Run this script in the 64-bit PowerShell.'
}
if ($Remove) {
    Remove-Agent
}
else {
    Install-Agent
}
